// Reads a body with one JSON value a line, as it arrives.

/** Longest line in characters: a file with 65,536 damaged ranges has less. */
const LINE_MAX = 8 << 20;

/**
 * @param {ReadableStream<Uint8Array>} body
 * @returns {AsyncGenerator<any>}
 */
export async function* jsonLines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  try {
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
      const lines = (rest + piece.value).split('\n');
      rest = lines.pop();
      for (const line of lines) {
        yield JSON.parse(line);
      }
      if (rest.length > LINE_MAX) {
        throw new Error('the server sent a line of more than 8 MiB');
      }
    }
  } finally {
    // Not awaited: the server decides when the body ends.
    reader.cancel().catch(() => {});
  }
  if (rest !== '') {
    throw new Error('the connection ended within a line');
  }
}
