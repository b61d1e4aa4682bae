// ---- Rotation, centre and disk that the reader sets by hand -------------------------------------------------------

const hand = data.hand;  // what the file says, in pixels of the stored detector; null for a sample
const handInputs = [...document.querySelectorAll("#by-hand input")];
const handInput = name => handInputs.find(input => input.name === name);
const setByHand = new Set();  // the names of the numbers that the reader has changed

// A deflection on the detector in the frame of the scan: y and x exchanged if mirrored, then turned.
function turned(y, x, degrees, mirrored) {
  const angle = degrees * Math.PI / 180, [v, u] = mirrored ? [x, y] : [y, x];
  return [v * Math.cos(angle) - u * Math.sin(angle), v * Math.sin(angle) + u * Math.cos(angle)];
}

// The rms curl of a deflection over its rms divergence, in the inside of the raster. Electric fields have no curl.
function curlOverDivergence(down, along, [rows, columns], [stepY, stepX]) {
  let curl = 0, divergence = 0;
  for (let row = 1; row < rows - 1; row++) {
    for (let column = 1; column < columns - 1; column++) {
      const i = row * columns + column;
      const overY = values => (values[i + columns] - values[i - columns]) / stepY;
      const overX = values => (values[i + 1] - values[i - 1]) / stepX;
      curl += (overY(along) - overX(down)) ** 2;
      divergence += (overY(down) + overX(along)) ** 2;
    }
  }
  return Math.sqrt(curl / divergence);
}

// Pixel and semiangle by the radius of the disk: the semiangle stands where both are known.
function scaleByDisk({ pixel_mrad, semiangle_mrad }, radius) {
  if (semiangle_mrad) {
    const [y, x] = pixel_mrad || [1, 1], times = semiangle_mrad / radius / Math.sqrt(y * x);
    return { pixel_mrad: [y * times, x * times] };
  }
  return pixel_mrad ? { semiangle_mrad: radius * Math.sqrt(pixel_mrad[0] * pixel_mrad[1]) } : {};
}

// The contents of a calibration file, from what the file says and what the reader has set.
function calibrationOf(stated, chosen) {
  const file = { format: "namsa calibration 1", data: stated.file };
  const add = (name, value, method) => Object.assign(file, { [name]: value, [`${name}_error`]: null, [`${name}_method`]: method });
  for (const name of ["energy_ev", "semiangle_mrad", "scan_step_angstrom", "pixel_mrad"])
    if (stated[name] !== null) add(name, stated[name], "given, or from the file");
  for (const [name, value] of Object.entries(chosen)) add(name, value, "set by hand");
  return { ...file, bad_pixels: stated.bad_pixels, notes: ["optic axis, disk, rotation and mirror were set by hand"] };
}

// The same as options of the commands.
function optionsOf(chosen) {
  const words = [];
  for (const [name, value] of Object.entries(chosen)) {
    if (name === "disk_radius_pixels") continue;
    const option = name.replaceAll("_", "-");
    if (name === "mirrored") words.push(value ? "--mirrored" : "--no-mirrored");
    else words.push(`--${option} ${[value].flat().map(number => +number.toPrecision(6)).join(" ")}`);
  }
  return words.join(" ");
}

function chosenByHand() {
  const numberOf = name => Number(handInput(name).value), chosen = {};
  if (setByHand.has("y") || setByHand.has("x")) chosen.centre_pixels = [numberOf("y"), numberOf("x")];
  if (setByHand.has("radius") && numberOf("radius") > 0) {
    chosen.disk_radius_pixels = numberOf("radius");
    Object.assign(chosen, scaleByDisk(hand, numberOf("radius")));
  }
  if (setByHand.has("rotation") || setByHand.has("mirrored"))
    Object.assign(chosen, { rotation_deg: numberOf("rotation"), mirrored: handInput("mirrored").checked });
  return chosen;
}

// Centres of mass of the patterns, from the axis of the file, in units of the angle.
let centresOfMass = null;
function massCentres() {
  const down = new Float64Array(positions.length), along = new Float64Array(positions.length);
  positions.forEach((_, pattern) => {
    let total = 0, y = 0, x = 0;
    for (let i = 0, first = pattern * pixels; i < pixels; i++) {
      const value = halfValues[halves[first + i]];
      total += value;
      y += value * Math.floor(i / width);
      x += value * (i % width);
    }
    if (!(total > 0)) return;
    down[pattern] = data.origin[0] + data.step[0] * y / total;
    along[pattern] = data.origin[1] + data.step[1] * x / total;
  });
  return [down, along];
}

// From a place on the stored detector to the page's angles.
const angleAt = (place, axis) => (place - hand.centre_pixels[axis]) * hand.page_step[axis];

function drawDisk() {
  const [y, x, radius] = ["y", "x", "radius"].map(name => Number(handInput(name).value));
  const size = radius * Math.sqrt(hand.page_step[0] * hand.page_step[1]);
  document.querySelectorAll(".detector svg").forEach(svg => {
    const circle = svg.querySelector("circle:not(.limit)")
      || svg.appendChild(document.createElementNS(svg.namespaceURI, "circle"));
    for (const [name, value] of [["cx", angleAt(x, 1)], ["cy", angleAt(y, 0)], ["r", size]]) circle.setAttribute(name, value);
  });
}

function drawDeflection() {
  centresOfMass ||= massCentres();
  const axis = [angleAt(Number(handInput("y").value), 0), angleAt(Number(handInput("x").value), 1)];
  const degrees = Number(handInput("rotation").value), mirrored = handInput("mirrored").checked;
  const pairs = positions.map((_, i) => turned(centresOfMass[0][i] - axis[0], centresOfMass[1][i] - axis[1], degrees, mirrored));
  const [down, along] = [pairs.map(pair => pair[0]), pairs.map(pair => pair[1])];
  const widest = [...down, ...along].reduce((most, value) => Math.max(most, Math.abs(value)), 0) || 1;
  buttons.filter(item => item.dataset.key.startsWith("deflection-")).forEach((item, number) => {
    const values = [down, along][number], title = `Deflection ${"yx"[number]}`;
    paint(scanCanvas.getContext("2d"), values.length, i => (values[i] / widest + 1) / 2, palettes[item.dataset.colours]);
    item.querySelector("img").src = scanCanvas.toDataURL();
    item.querySelector("b").textContent = title;
    const ends = item.querySelectorAll(".bar > span");
    [ends[0].textContent, ends[1].textContent] = [-widest, widest].map(shortNumber);
    Object.assign(item.dataset, { low: -widest, high: widest });
    const readings = data.values.find(signal => signal.title.startsWith(title));
    if (readings) Object.assign(readings, { title, numbers: values.map(value => +value.toPrecision(4)) });
    if (button === item) selectMap(item);
  });
  const share = curlOverDivergence(down, along, raster, hand.scan_step_angstrom || [1, 1]);
  byId("hand-curl").textContent = Number.isFinite(share) ? `curl over divergence ${shortNumber(share)}` : "";
}

function drawByHand() {
  drawDisk();
  drawDeflection();
  byId("hand-options").textContent = optionsOf(chosenByHand());
}

function setHand(values) {
  for (const [name, value] of Object.entries(values)) {
    handInput(name).value = +value.toPrecision(6);
    setByHand.add(name);
  }
  drawByHand();
}

// The ring that the reader has drawn about the bright disk is its edge.
function takeRing() {
  const [sizeY, sizeX] = hand.page_step;
  setHand({ y: hand.centre_pixels[0] + detector.y / sizeY, x: hand.centre_pixels[1] + detector.x / sizeX,
    radius: detector.outer / Math.sqrt(sizeY * sizeX) });
}

function saveCalibration() {
  const text = JSON.stringify(calibrationOf(hand, chosenByHand()), null, 2);
  Object.assign(document.createElement("a"), { download: `${document.title}.json`,
    href: URL.createObjectURL(new Blob([text], { type: "application/json" })) }).click();
}

if (hand) {
  const stated = { y: hand.centre_pixels[0], x: hand.centre_pixels[1], radius: hand.disk_radius_pixels, rotation: hand.rotation_deg };
  for (const [name, value] of Object.entries(stated)) handInput(name).value = +value.toPrecision(6);
  handInput("mirrored").checked = hand.mirrored;
  handInputs.forEach(input => input.addEventListener("input", () => {
    if (input.type !== "checkbox" && !Number.isFinite(parseFloat(input.value))) return;
    setByHand.add(input.name);
    drawByHand();
  }));
  byId("hand-ring").addEventListener("click", takeRing);
  byId("hand-save").addEventListener("click", saveCalibration);
}
