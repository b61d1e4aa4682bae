"""Parts of a compiled step, by a text as XLA writes it."""

import step_parts

TEXT = """
HloModule jit_step, is_scheduled=true

%fused_bits (param_0: u32[2,36]) -> u32[2,36] {
  %param_0 = u32[2,36]{1,0} parameter(0)
  ROOT %xor.3 = u32[2,36]{1,0} xor(%param_0, %param_0), metadata={op_name="jit(step)/xor"}
}

%fused_update (param_0.1: f32[3,3,4,4]) -> f32[3,3,4,4] {
  %param_0.1 = f32[3,3,4,4]{3,2,1,0} parameter(0)
  ROOT %multiply.1 = f32[3,3,4,4]{3,2,1,0} multiply(%param_0.1, %param_0.1)
}

%add.1 (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum.1 = f32[] add(%x, %y)
}

ENTRY %main.9 (k.1: f32[3,3,4,4], b.1: u32[2,36]) -> (f32[3,3,4,4], f32[]) {
  %k.1 = f32[3,3,4,4]{3,2,1,0} parameter(0)
  %conv.2 = f32[2,6,6,4]{3,2,1,0} convolution(%k.1, %k.1), window={size=3x3 pad=1_1x1_1}
  %bits = u32[2,36]{1,0} fusion(%b.1), kind=kLoop, calls=%fused_bits
  %all-reduce.1 = (f32[3,3,4,4]{3,2,1,0}, f32[]) all-reduce(%k.1, %k.1), to_apply=%add.1
  ROOT %update = f32[3,3,4,4]{3,2,1,0} fusion(%k.1), kind=kLoop, calls=%fused_update
}
"""


def test_instructions_belong_to_parts_by_what_they_compute():
    parts = step_parts.parts_of(TEXT)
    assert parts["conv.2"] == step_parts.CONVOLUTIONS
    assert parts["bits"] == step_parts.RANDOM_NUMBERS
    assert parts["all-reduce.1"] == step_parts.MESSAGES
    assert parts["update"] == step_parts.REST


def test_messages_are_counted_by_the_bytes_that_are_summed():
    assert step_parts.message_bytes(TEXT) == 4 * (3 * 3 * 4 * 4 + 1)
    assert step_parts.message_bytes(TEXT.replace("all-reduce(", "copy(")) == 0
