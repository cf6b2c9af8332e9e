// Questions to the server. Every answer is data, or a Trouble with a word and a sentence.

export class Trouble extends Error {
  constructor(word, message) {
    super(message);
    this.word = word;
  }
}

const GONE = "The server does not answer. If it was ended, start it again with “sgdlimit explore” and open the new address.";

export function address(what, query) {
  return `api/${what}?${query}`;
}

async function request(what, query, signal) {
  let answer;
  try {
    answer = await fetch(address(what, query), { signal, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Trouble("gone", GONE);
  }
  if (answer.ok) return answer;
  let told;
  try {
    told = await answer.json();
  } catch {
    throw new Trouble("failed", `The server answers ${answer.status}.`);
  }
  throw new Trouble(told.error, told.message);
}

export async function ask(what, query = "", signal = undefined) {
  const answer = await request(what, query, signal);
  try {
    return await answer.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Trouble("gone", GONE);
  }
}

/** Lines of a long answer, as they come. */
export async function* lines(what, query, signal) {
  const answer = await request(what, query, signal);
  const reader = answer.body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    let piece;
    try {
      piece = await reader.read();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Trouble("gone", GONE);
    }
    if (piece.done) return;
    const found = (rest + decoder.decode(piece.value, { stream: true })).split("\n");
    rest = found.pop();
    for (const line of found) {
      const told = JSON.parse(line);
      if (told.error) throw new Trouble(told.error, told.message);
      yield told;
    }
  }
}
