"use strict";
const byId = id => document.getElementById(id);
const data = JSON.parse(byId("data").textContent);
const { numbers, positions, raster, period, exponents, units, brightest, power, tile: [height, width] } = data;
const pixels = height * width;
const buttons = [...document.querySelectorAll("#maps button")];
const virtualButton = buttons.find(item => item.dataset.key === "virtual-detector");
const bytesOf = base64 => {
  const text = atob(base64), bytes = new Uint8Array(text.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
};
const palettes = Object.fromEntries(Object.entries(data.colours).map(([name, text]) => [name, bytesOf(text)]));
const [patternColours, imageColours] = [palettes.magma, palettes.gray];
const canvas = Object.assign(byId("pattern"), { width, height });
let selected = 0, shown = 0, button = buttons[0], view, marks, halves;

// ---- Numbers of the patterns: 16-bit floats, and for each pattern an exponent of two ------------------------------

const halfValues = Float32Array.from({ length: 65536 }, (_, bits) => {
  const exponent = bits >> 10 & 31, fraction = bits & 1023;
  const size = exponent ? 2 ** (exponent - 25) * (1024 + fraction) : 2 ** -24 * fraction;
  return bits >> 15 ? -size : size;
});

async function unpackPatterns() {
  const packed = new Blob([bytesOf(byId("patterns").textContent)]).stream();
  const unpacked = packed.pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(unpacked).arrayBuffer());
  halves = new Uint16Array(bytes.length / 2);
  for (let i = 0; i < halves.length; i++) halves[i] = bytes[i] | bytes[i + halves.length] << 8;
}

// The numbers (n) as an image of a colour map, in `context`.
function paint(context, n, levelOf, colours) {
  const image = new ImageData(context.canvas.width, context.canvas.height);
  for (let i = 0; i < n; i++) {
    const level = 3 * Math.round(255 * Math.min(1, Math.max(0, levelOf(i))));
    image.data.set([colours[level], colours[level + 1], colours[level + 2], 255], 4 * i);
  }
  context.putImageData(image, 0, 0);
}

// From the fraction of the brightest value to the fraction of the colours.
const scales = {
  power: fraction => fraction ** power,
  linear: fraction => fraction,
  logarithm: fraction => 1 + Math.log10(Math.max(fraction, 1e-4)) / 4,
};

// The rectangle of the map that the reader has drawn, with the positions in it; null for none.
let region = null;

function meanPattern(chosen) {
  const mean = new Float64Array(pixels);
  for (const index of chosen) {
    const first = index * pixels, scale = 2 ** exponents[index] / chosen.length;
    for (let i = 0; i < pixels; i++) mean[i] += halfValues[halves[first + i]] * scale;
  }
  return mean;
}

function drawPattern(index) {
  const mean = meanPattern(region ? region.indices : [index]), scale = 1 / brightest / 10 ** byId("brightest").value;
  const level = scales[byId("scale").value], levelOf = i => level(Math.max(0, mean[i] * scale));
  paint(canvas.getContext("2d"), pixels, levelOf, patternColours);
}

// ---- Virtual detector: a ring on the patterns, and its image ------------------------------------------------------

const detector = { ...data.detector };  // y, x, inner, outer
const ringInputs = [...document.querySelectorAll("#ring input")];
const scanCanvas = raster && Object.assign(document.createElement("canvas"), { height: raster[0], width: raster[1] });
let virtual = new Float64Array(positions.length), drawing = false;

// A pixel belongs to the ring if its centre does.
function pixelsInRing() {
  const inside = [];
  for (let i = 0; i < pixels; i++) {
    const y = data.origin[0] + data.step[0] * Math.floor(i / width), x = data.origin[1] + data.step[1] * (i % width);
    const distance = Math.hypot(y - detector.y, x - detector.x);
    if (distance >= detector.inner && distance < detector.outer) inside.push(i);
  }
  return inside;
}

function detect() {
  const inside = Uint32Array.from(pixelsInRing());
  virtual = virtual.map((_, pattern) => {
    let sum = 0;
    for (let k = 0, first = pattern * pixels; k < inside.length; k++) sum += halfValues[halves[first + inside[k]]];
    return sum * 2 ** exponents[pattern];
  });
}

const circle = radius => radius <= 0 ? "" : `M${detector.x - radius} ${detector.y}` +
  `a${radius} ${radius} 0 1 0 ${2 * radius} 0a${radius} ${radius} 0 1 0 ${-2 * radius} 0`;
// A number as text for people: with a minus sign, which a field for input does not take.
const written = text => String(text).replace(/^-/, "\u2212");
const shortNumber = value => Math.abs(value) >= 1000 ? written(Math.round(value).toLocaleString("en")) : written(+value.toPrecision(3));

// What a simulation cannot say of the ring: its outer part, or all of it, lies beyond the band limit.
function beyondLimit() {
  const moved = Math.hypot(detector.y, detector.x), { inner, outer } = detector;
  if (data.limit === null || moved + outer <= data.limit) return "";
  const all = Math.max(moved - outer, inner - moved) >= data.limit;
  return `${all ? "lies beyond" : "is cut at"} the simulation's band limit of ${shortNumber(data.limit)} ${units.angle}`;
}

function drawDetector() {
  drawing = false;
  document.querySelectorAll(".ring").forEach(path => path.setAttribute("d", circle(detector.outer) + circle(detector.inner)));
  ringInputs.forEach(input => { input.value = +detector[input.name].toPrecision(4); });
  detect();
  byId("beyond").textContent = beyondLimit();
  if (!virtualButton) return;
  const low = virtual.reduce((a, b) => Math.min(a, b)), high = virtual.reduce((a, b) => Math.max(a, b));
  paint(scanCanvas.getContext("2d"), virtual.length, i => (virtual[i] - low) / (high - low || 1), imageColours);
  virtualButton.querySelector("img").src = scanCanvas.toDataURL();
  const ends = virtualButton.querySelectorAll(".bar > span");
  [ends[0].textContent, ends[1].textContent] = [low, high].map(shortNumber);
  Object.assign(virtualButton.dataset, { low, high });
  if (button === virtualButton) selectMap(button);
}

function changeDetector(changes) {
  Object.assign(detector, changes);
  detector.outer = Math.max(0, detector.outer);
  detector.inner = Math.min(Math.max(0, detector.inner), detector.outer);
  if (virtualButton) uncover(virtualButton);
  if (!drawing) setTimeout(() => { drawDetector(); showPattern(shown); });
  drawing = true;
}

const viewOf = element => element.dataset.view.split(" ").map(Number);

function pointIn(element, event) {
  const box = element.getBoundingClientRect(), [left, top, w, h] = viewOf(element);
  return [top + (event.clientY - box.top) / box.height * h, left + (event.clientX - box.left) / box.width * w];
}

// Its edges change the radii, its inside moves it.
function grab(element, event) {
  const [y, x] = pointIn(element, event), near = viewOf(element)[2] / 40, { inner, outer } = detector;
  const distance = Math.hypot(y - detector.y, x - detector.x), offset = [y - detector.y, x - detector.x];
  const part = Math.abs(distance - outer) < near ? "outer" : inner && Math.abs(distance - inner) < near ? "inner" : "";
  if (!part && distance > outer) return;
  const [left, top, wide, tall] = viewOf(element), within = (value, start, size) => Math.min(Math.max(value, start), start + size);
  const drag = moved => {
    const [v, u] = pointIn(element, moved);
    if (part) changeDetector({ [part]: Math.hypot(v - detector.y, u - detector.x) });
    else changeDetector({ y: within(v - offset[0], top, tall), x: within(u - offset[1], left, wide) });
  };
  const stop = () => {
    element.removeEventListener("pointermove", drag);
    rememberState();
  };
  element.addEventListener("pointermove", drag);
  ["pointerup", "pointercancel", "lostpointercapture"].forEach(end => element.addEventListener(end, stop, { once: true }));
  if (event.isTrusted) element.setPointerCapture(event.pointerId);
}

// ---- Maps and the image over them ------------------------------------------------------------------------------------

// Gives an element the aspect ratio of its view, and a scale bar of a round length.
function fitShape(element, [, , w, h]) {
  Object.assign(element.style, { aspectRatio: w / h, width: w >= h ? "100%" : "auto", height: w >= h ? "auto" : "100%" });
  element.parentElement.style.aspectRatio = Math.max(1, w / h);
  const bar = element.querySelector(".scale") || element.appendChild(document.createElement("span"));
  const decade = 10 ** Math.floor(Math.log10(w / 3)), length = decade * [5, 2, 1].find(step => step * decade <= w / 3);
  bar.className = "scale";
  bar.textContent = `${+length.toPrecision(1)} ${element.dataset.units}`;
  bar.style.width = `${100 * length / w}%`;
}

// Shows the colours of the map from the parts `map-low` to `map-high` of its scale.
async function drawMap() {
  const image = byId("map-image"), chosen = button, source = button.querySelector("img").src;
  const [from, to] = ["map-low", "map-high"].map(id => Number(byId(id).value));
  const { low, high, power: exponent, colours: name } = button.dataset, bar = button.querySelector(".bar").cloneNode(true);
  const valueAt = part => Number(low) + part ** (1 / exponent) * (high - low);
  if (from > 0 || to < 1) {
    [...bar.querySelectorAll(":scope > span")].forEach((end, i) => { end.textContent = shortNumber(valueAt([from, to][i])); });
    const drawn = await pixelsOf(source), colours = palettes[name], levels = new Map();
    if (button !== chosen) return;
    for (let i = 255; i >= 0; i--) levels.set(colours[3 * i] << 16 | colours[3 * i + 1] << 8 | colours[3 * i + 2], i);
    const { data: bytes } = drawn.image;
    for (let i = 0; i < bytes.length; i += 4) {
      const level = levels.get(bytes[i] << 16 | bytes[i + 1] << 8 | bytes[i + 2]) ?? 0;
      const next = 3 * Math.round(255 * Math.min(1, Math.max(0, (level / 255 - from) / Math.max(to - from, 0.004))));
      bytes.set(colours.subarray(next, next + 3), i);
    }
    drawn.context.putImageData(drawn.image, 0, 0);
    image.src = drawn.context.canvas.toDataURL();
  } else image.src = source;
  if (byId("overlay-image").hidden) byId("map-bar").replaceChildren(bar);
}

async function pixelsOf(source) {
  const picture = Object.assign(new Image(), { src: source });
  await picture.decode();
  const { naturalWidth: across, naturalHeight: down } = picture;
  const context = Object.assign(document.createElement("canvas"), { width: across, height: down }).getContext("2d");
  context.drawImage(picture, 0, 0);
  return { context, image: context.getImageData(0, 0, across, down) };
}

// Downloads what an element shows, with its scale bar, title and the ends of its colours.
async function savePicture(element, layers, title, bar) {
  const [, , w, h] = viewOf(element), across = 1024, down = Math.round(across * h / w), line = 22;
  const paper = Object.assign(document.createElement("canvas"), { width: across, height: down + 2 * line });
  const context = Object.assign(paper.getContext("2d"), { imageSmoothingEnabled: false, font: "16px sans-serif" });
  context.fillStyle = "white";
  context.fillRect(0, 0, paper.width, paper.height);
  for (const [layer, opacity, x, y, wide, tall] of layers) {
    if (layer.decode) await layer.decode();
    context.globalAlpha = opacity;
    context.drawImage(layer, x * across, y * down, wide * across, tall * down);
  }
  context.globalAlpha = 1;
  const scale = element.querySelector(".scale"), length = parseFloat(scale.style.width) / 100 * across;
  context.fillRect(0.04 * across, 0.95 * down, length, 6);
  context.fillText(scale.textContent, 0.04 * across, 0.94 * down);
  context.fillStyle = "black";
  const [low, high] = [...bar.querySelectorAll("span > span")].map(end => end.textContent);
  context.fillText(`${title}: ${low} to ${high} ${bar.querySelector("em").textContent}`, 4, down + line);
  context.fillText(document.title, 4, down + 2 * line - 4);
  Object.assign(document.createElement("a"), { href: paper.toDataURL(), download: `${document.title} ${title}.png` }).click();
}

function saveMap() {
  const image = byId("overlay-image"), part = name => parseFloat(image.style[name]) / 100;
  const over = image.hidden ? [] : [[image, Number(byId("opacity").value), part("left"), part("top"), part("width"), part("height")]];
  return savePicture(byId("map"), [[byId("map-image"), 1, 0, 0, 1, 1], ...over], byId("map-title").textContent, byId("map-bar"));
}

// A position outside the map is shown where the cell repeats.
const wrapOnto = (value, start, size, length) =>
  !length || value >= start && value <= start + size ? value : start + (((value - start) % length) + length) % length;

function selectMap(next) {
  button = next;
  buttons.forEach(item => item.setAttribute("aria-pressed", item === button));
  view = viewOf(button);
  fitShape(byId("map"), view);
  byId("map").dataset.view = button.dataset.view;
  const [left, top, w, h] = view, [tall, wide] = period || [0, 0];
  marks = positions.map(([y, x]) => [wrapOnto(y, top, h, tall), wrapOnto(x, left, w, wide)]);
  byId("marks").setAttribute("viewBox", view.join(" "));
  placeOverlay();
  drawMap();
  showPattern(shown);
}

// Shows a map that the reader asks for without what is over it.
function uncover(next) {
  byId("overlay").value = "";
  if (button !== next || !byId("overlay-image").hidden) selectMap(next);
}

function placeOverlay() {
  const option = byId("overlay").selectedOptions[0], image = byId("overlay-image");
  image.hidden = !option.value;
  byId("map-title").textContent = button.querySelector("b").textContent;
  byId("overlay-bar").innerHTML = option.value && option.dataset.bar;
  if (image.hidden) return;
  byId("overlay-bar").querySelector("i").style.opacity = byId("opacity").value;
  byId("map-title").textContent = `${option.textContent.trim()}, over map: ${button.querySelector("b").textContent}`;
  byId("map-bar").replaceChildren(byId("overlay-bar").firstChild.cloneNode(true));
  const [left, top, w, h] = view, [x, y, wide, tall] = viewOf(option);
  // In a periodic cell, the copy that lies over the map.
  const moved = (start, gap, length) => length ? start + Math.round(gap / length) * length : start;
  const [down, right] = period || [0, 0];
  const atX = moved(x, left + (w - wide) / 2 - x, right), atY = moved(y, top + (h - tall) / 2 - y, down);
  image.src = option.dataset.source;
  const percent = (part, whole) => `${100 * part / whole}%`;
  Object.assign(image.style, { opacity: byId("opacity").value, inset: "auto", left: percent(atX - left, w),
    top: percent(atY - top, h), width: percent(wide, w), height: percent(tall, h) });
}

// ---- The position that is shown -----------------------------------------------------------------------------------

function showPattern(index) {
  shown = index;
  const [, , w, h] = view, [y, x] = marks[index], armLength = Math.max(w, h) / 30;
  const cross = `M${x - armLength} ${y}h${2 * armLength}M${x} ${y - armLength}v${2 * armLength}`;
  const dots = raster ? "" : marks.map(([v, u]) => `M${u} ${v}h${w / 1e4}`).join("");
  const frame = region ? `M${region.left} ${region.top}h${region.wide}v${region.tall}h${-region.wide}z` : cross;
  byId("marks").innerHTML = `<path class="dot" d="${dots}"/><path class="halo" d="${frame}"/><path class="cross" d="${frame}"/>`;
  drawPattern(index);
  byId("slider").value = index;
  if (region) {
    const { indices } = region, sum = indices.reduce((total, i) => total + virtual[i], 0);
    byId("number").textContent = `(mean of ${indices.length} positions)`;
    byId("where").textContent = `Mean of ${indices.length} positions · Virtual detector: ${written(+(sum / indices.length).toPrecision(4))}`;
    return;
  }
  byId("number").textContent = numbers[index];
  const readings = data.values.map(({ title, units: unit, numbers: values }) =>
    `${title}: ${written(values[index] ?? "–")}${["mrad", "pixels", "e/Å²"].includes(unit) && values[index] !== null ? ` ${unit}` : ""}`);
  const coordinates = positions[index].map(value => written(value.toFixed(2)));
  const place = `Position ${numbers[index]}: y ${coordinates[0]} ${units.scan}, x ${coordinates[1]} ${units.scan}`;
  byId("where").textContent = [place, ...readings, `Virtual detector: ${written(+virtual[index].toPrecision(4))}`].join(" · ");
}

function selectPosition(index) {
  region = null;
  selected = index;
  showPattern(index);
  rememberState();
}

// In the page's address, so that it can be sent; the frame of a notebook has none.
function rememberState() {
  if (location.protocol === "about:") return;
  const changed = Object.entries(detector).filter(([name, value]) => value !== data.detector[name]);
  const ring = changed.map(([name, value]) => [name, +value.toPrecision(6)]);
  const overlay = byId("overlay").length > 1 ? [["overlay", byId("overlay").value], ["opacity", byId("opacity").value]] : [];
  const state = [["position", numbers[selected]], ["map", button.dataset.key], ...ring, ...overlay];
  history.replaceState(null, "", `#${new URLSearchParams(state)}`);
}

function nearestPosition(event) {
  const [y, x] = pointIn(byId("map"), event);
  let best = 0, least = Infinity;
  marks.forEach(([v, u], index) => {
    const distance = Math.hypot(v - y, u - x);
    if (distance < least) [best, least] = [index, distance];
  });
  return best;
}

// With the Shift key the reader draws a rectangle: the mean pattern of the positions in it is shown.
function drawRegion(event) {
  if (!event.shiftKey) return;
  const map = byId("map"), [y, x] = pointIn(map, event);
  const drag = moved => {
    const [v, u] = pointIn(map, moved), [top, left] = [Math.min(y, v), Math.min(x, u)];
    const [tall, wide] = [Math.abs(v - y), Math.abs(u - x)];
    const inside = ([b, a]) => b >= top && b <= top + tall && a >= left && a <= left + wide;
    const indices = [...marks.keys()].filter(index => inside(marks[index]));
    region = indices.length ? { indices, top, left, tall, wide } : null;
    showPattern(selected);
  };
  const stop = () => map.removeEventListener("pointermove", drag);
  map.addEventListener("pointermove", drag);
  ["pointerup", "pointercancel", "lostpointercapture"].forEach(end => map.addEventListener(end, stop, { once: true }));
  if (event.isTrusted) map.setPointerCapture(event.pointerId);
}

function moveSelection(event) {
  const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
  if (!steps) return;
  event.preventDefault();
  const [rows, across] = raster || [1, positions.length], row = Math.floor(selected / across) + (raster ? steps[0] : 0);
  const column = selected % across + steps[1] + (raster ? 0 : steps[0]);
  if (row >= 0 && row < rows && column >= 0 && column < across) selectPosition(row * across + column);
}

function followHash() {
  const state = new URLSearchParams(location.hash.slice(1)), index = numbers.indexOf(Number(state.get("position") || -1));
  if (index >= 0) selected = shown = index;
  for (const name of Object.keys(detector)) if (Number.isFinite(parseFloat(state.get(name)))) detector[name] = Number(state.get(name));
  if ([...byId("overlay").options].some(one => one.value === state.get("overlay"))) byId("overlay").value = state.get("overlay");
  byId("opacity").value = state.get("opacity") ?? byId("opacity").value;
  selectMap(buttons.find(item => item.dataset.key === state.get("map")) || button);
  drawDetector();
  showPattern(selected);
}

// ---- What the reader does -----------------------------------------------------------------------------------------

document.querySelectorAll(".detector").forEach(element => {
  fitShape(element, viewOf(element));
  element.addEventListener("pointerdown", event => grab(element, event));
  element.addEventListener("pointermove", event => {
    const [y, x] = pointIn(element, event), unit = units.angle;
    byId("angle").textContent = `Here: y ${written(y.toFixed(2))}, x ${written(x.toFixed(2))} ${unit}, ${Math.hypot(x, y).toFixed(2)} from the axis.`;
  });
});
ringInputs.forEach(input => input.addEventListener("change", () => {
  if (input.value !== "") changeDetector({ [input.name]: Number(input.value) });
  rememberState();
}));
["overlay", "opacity"].forEach(id => byId(id).addEventListener("input", () => { placeOverlay(); drawMap(); rememberState(); }));
["map-low", "map-high"].forEach(id => byId(id).addEventListener("input", drawMap));
["scale", "brightest"].forEach(id => byId(id).addEventListener("input", () => showPattern(shown)));
byId("save-map").addEventListener("click", saveMap);
byId("save-pattern").addEventListener("click", () => {
  const element = document.querySelector(".detector");
  savePicture(element, [[canvas, 1, 0, 0, 1, 1]], `Pattern ${region ? "mean" : numbers[shown]}`, element.closest("figure").querySelector("figcaption"));
});
buttons.forEach(item => item.addEventListener("click", () => { uncover(item); selectPosition(selected); }));
byId("map").addEventListener("pointerdown", drawRegion);
byId("map").addEventListener("pointermove", event => { if (!region && !event.shiftKey) showPattern(nearestPosition(event)); });
byId("map").addEventListener("pointerleave", () => { if (!region) showPattern(selected); });
byId("map").addEventListener("click", event => { if (!event.shiftKey) selectPosition(nearestPosition(event)); });
byId("map").addEventListener("keydown", moveSelection);
byId("slider").addEventListener("input", event => selectPosition(Number(event.target.value)));
addEventListener("hashchange", followHash);
const ready = unpackPatterns().then(followHash);
