// Reads bodies up to a limit, because the server can be broken or hostile.

/**
 * Returns the text of a body.
 * @param {Response} response
 * @param {number} most bytes
 * @param {string} what names the body in the error
 */
export async function limitedText(response, most, what = 'an answer') {
  const decoder = new TextDecoder();
  let text = '';
  let bytes = 0;
  const reader = response.body?.getReader();
  for (let piece = await reader?.read(); piece && !piece.done; piece = await reader?.read()) {
    bytes += piece.value.length;
    if (bytes > most) {
      // Not awaited: the server decides when the body ends.
      reader?.cancel().catch(() => {});
      throw new Error(`the server sent ${what} of more than ${most} bytes`);
    }
    text += decoder.decode(piece.value, { stream: true });
  }
  return text + decoder.decode();
}
