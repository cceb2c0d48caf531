/* Type a story and a question. Known words are completed; unknown ones are reported. */

import { element } from "../page-data.js";
import { completions } from "../tasks/stories.js";

/** A text split into its last question, without the answer, and everything before it. */
function divided(text) {
  const lines = text.trimEnd().split("\n");
  const last = lines.at(-1);
  if (!last.includes("?")) return [text, ""];
  return [lines.slice(0, -1).join("\n"), last];
}

/** The text of a field, without a last word that is still being typed: not known yet, but the start of a known one. */
function typed(field, words) {
  const at = document.activeElement === field ? field.selectionStart : -1;
  const word = at < 0 ? "" : (field.value.slice(0, at).match(/[a-z]+$/i)?.[0].toLowerCase() ?? "");
  if (!word || words.has(word) || !completions(word, words).length) return field.value;
  return field.value.slice(0, at - word.length) + field.value.slice(at);
}

/** Offer completions of the word before the cursor; Tab or a click takes one. */
function completing(field, words, changed) {
  const list = element("div", { class: "completions", "aria-live": "polite" });
  const start = () => field.value.slice(0, field.selectionStart).match(/[a-z]+$/i)?.[0].toLowerCase() ?? "";
  const take = (word) => {
    const at = field.selectionStart;
    const head = field.value.slice(0, at - start().length) + word;
    field.value = head + field.value.slice(at);
    field.setSelectionRange(head.length, head.length);
    field.focus();
    offer();
    changed();
  };
  const offer = () => {
    const found = completions(start(), words).slice(0, 6);
    list.replaceChildren(...found.map((word) => element("button", { type: "button", class: "small", tabindex: -1, onmousedown: (event) => (event.preventDefault(), take(word)) }, word)));
    return found;
  };
  field.addEventListener("input", () => {
    offer();
    changed();
  });
  field.addEventListener("keydown", (event) => {
    const found = event.key === "Tab" && !event.shiftKey ? offer() : [];
    if (!found.length) return;
    event.preventDefault();
    take(found[0]);
  });
  field.addEventListener("blur", () => list.replaceChildren());
  return list;
}

export function buildStoryEditor(place, laying, spec, edit) {
  const words = new Set(laying.words);
  const [before, question] = divided(spec.text);
  const story = element("textarea", { rows: 8, spellcheck: "false", autocapitalize: "off", "aria-label": "Story, one sentence per line" });
  story.value = before;
  const asked = element("input", { type: "text", spellcheck: "false", autocapitalize: "off", autocomplete: "off", placeholder: "where is mary?", "aria-label": "Question" });
  asked.value = question;
  const changed = () => {
    const last = typed(asked, words).trim();
    const text = last && !last.includes("?") ? `${last}?` : last;
    edit({ text: `${typed(story, words).trimEnd()}${text ? `\n${text}` : ""}` });
  };
  place.append(
    element("label", { class: "field" }, "Story", story), completing(story, words, changed),
    element("label", { class: "field" }, "Question", asked), completing(asked, words, changed),
    element("p", { class: "quiet" }, `The machine knows ${words.size - 3} words. The story may contain questions, each with its correct answer after the question mark.`),
  );
  return [];
}
