// The server as this page uses it.
let key = sessionStorage.getItem("key") ?? "";

export function setKey(value) {
  key = value;
  sessionStorage.setItem("key", value);
}

const headers = (more = {}) => (key ? {...more, Authorization: `Bearer ${key}`} : more);

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function check(response) {
  if (response.ok) return response;
  const text = await response.text();
  let message = text;
  try {
    const body = JSON.parse(text);
    message = body.error?.message ?? body.status ?? text;
  } catch { /* not JSON: the text itself */ }
  throw new ApiError(response.status, message);
}

export const getJson = async (path) => (await check(await fetch(path, {headers: headers()}))).json();

/** Posts a streaming request and calls onChunk with the JSON of every event; ends with the stream. */
export async function stream(path, body, onChunk, signal) {
  const response = await check(await fetch(path, {
    method: "POST",
    headers: headers({"Content-Type": "application/json"}),
    body: JSON.stringify({...body, stream: true}),
    signal,
  }));
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    text += value;
    let end;
    while ((end = text.indexOf("\n\n")) >= 0) {
      const data = text.slice(6, end);
      text = text.slice(end + 2);
      if (data === "[DONE]") continue;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new ApiError(chunk.error.code, chunk.error.message);
      onChunk(chunk);
    }
  }
}
