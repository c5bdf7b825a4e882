// Small letters of ASCII become capital.
//
// asc upper.ts --runtime stub --use abort= --optimize --outFile upper.wasm

const SIZE: u32 = 65536;
const buffer: usize = heap.alloc(SIZE);

export function weft_input(wanted: u32): usize {
  return wanted <= SIZE ? buffer : 0;
}

export function weft_advance(input: usize, len: u32, isLast: u32): u64 {
  for (let at: u32 = 0; at < len; at++) {
    const byte = load<u8>(input + at);
    if (byte >= 97 && byte <= 122) store<u8>(input + at, byte - 32);
  }
  return ((input as u64) << 32) | (len as u64);
}
