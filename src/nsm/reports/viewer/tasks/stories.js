/* Stories with questions, word by word, as nsm/tasks/babi.py lays them out. */

import { Table, require } from "./layout.js";

const BLANK = "-";
const MOST_WORDS = 1500;
const WAY = /^how do you go\b/;

/** The words of a line; "." and "?" are words of their own. */
const wordsOf = (line) => line.toLowerCase().match(/[a-z]+|[^a-z\s]/g) ?? [];

/** A line as { words, answer, asks }: after a question's "?" comes the correct answer, if it is known. */
function parsed(line) {
  const [sentence, rest] = line.includes("?") ? [line.slice(0, line.indexOf("?") + 1), line.slice(line.indexOf("?") + 1)] : [line, ""];
  const words = wordsOf(sentence);
  const asks = words.at(-1) === "?";
  if (words.length && !asks && words.at(-1) !== ".") words.push(".");
  return { words, asks, answer: wordsOf(rest).filter((word) => word !== ",") };
}

/** The number of words to answer with: as in the correct answer, two for a path, else one. */
const blanks = ({ asks, answer, words }) => (asks ? answer.length || (WAY.test(words.join(" ")) ? 2 : 1) : 0);

const linesOf = (text) => text.split("\n").map(parsed).filter(({ words }) => words.length);

/** The unknown words of a text, each once. */
function unknownWords(text, known) {
  const found = linesOf(text).flatMap(({ words, answer }) => [...words, ...answer]);
  return [...new Set(found.filter((word) => word === BLANK || !known.has(word)))];
}

/** The known words that begin as a word does, the shortest first. */
export const completions = (start, known) =>
  start ? [...known].filter((word) => word.startsWith(start) && word !== start && /^[a-z]/.test(word)).sort((one, other) => one.length - other.length || (one < other ? -1 : 1)) : [];

export const storyTask = {
  about: "The input is a story, word by word; the machine has to answer each question with a word it knows.",
  read(task, sample, words) {
    const largest = (table, t) => words[table.row(t).indexOf(Math.max(...table.row(t)))];
    let text = "";
    for (let t = 0; t < sample.inputs.rows; t++) {
      const word = largest(sample.inputs, t);
      const last = t + 1 === sample.inputs.rows;
      if (word === BLANK) text += ` ${largest(sample.targets, t)}${!last && largest(sample.inputs, t + 1) === BLANK ? "," : "\n"}`;
      else if (word === ".") text += ".\n";
      else if (word === "?") text += "?";
      else text += (text && !text.endsWith("\n") ? " " : "") + word;
    }
    return { text: text.trimEnd() };
  },
  lay(task, { text }, inputs, outputs, words) {
    const numbers = new Map(words.map((word, number) => [word, number]));
    const lines = linesOf(text);
    const shown = lines.flatMap((line) => [...line.words, ...new Array(blanks(line)).fill(BLANK)]);
    const sample = { inputs: Table.blank(shown.length, inputs), targets: Table.blank(shown.length, outputs), counted: new Uint8Array(shown.length), subtask: new Array(shown.length).fill(0), decoding: 0, known: new Uint8Array(shown.length) };
    shown.forEach((word, t) => (sample.inputs.data[t * inputs + numbers.get(word)] = 1));
    let at = 0;
    for (const line of lines) {
      at += line.words.length;
      for (let n = 0; n < blanks(line); n++, at++) {
        sample.counted[at] = 1;
        sample.known[at] = n < line.answer.length ? 1 : 0;
        if (sample.known[at]) sample.targets.data[at * outputs + numbers.get(line.answer[n])] = 1;
      }
    }
    sample.decoding = Math.max(0, sample.counted.indexOf(1));
    return sample;
  },
  check(task, { text }, words) {
    require(typeof text === "string" && text.length < 20 * MOST_WORDS, "a story");
    const unknown = unknownWords(text, new Set(words));
    const named = unknown.slice(0, 6).map((word) => `“${word.slice(0, 30)}”`).join(", ");
    require(!unknown.length, `${named} ${unknown.length > 1 ? "are not words" : "is not a word"} that this machine knows`);
    const lines = linesOf(text);
    require(lines.length, "at least a sentence");
    require(lines.flatMap((line) => line.words).length <= MOST_WORDS, `at most ${MOST_WORDS} words`);
  },
  sizes: () => [],
};
