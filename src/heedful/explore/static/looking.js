/* The text that attention is looked at for: where it is typed, and what is asked about it. */

import { composer } from "heedful/composer.js";
import { t } from "heedful/words.js";

/** Where *it* must choose between *animal* and *street*. */
export const SENTENCE = "The animal didn't cross the street because it was too tired.";

/** What a translator opens on: of numbers, or of anything. */
export const NUMBER = "three hundred and five";

/** The form for a model's texts, the model's parts, and `asked(state)`: the part and the body that the address asks
for, which also fills in the form. `look({text, pair})` is called with what was typed. */
export function looking(model, look) {
  const translates = ["transformer", "rnn"].includes(model.family);
  const parts = model.parts ?? ["encoder"];
  const form = composer(look, {
    pairLabel: translates ? t("attention.target") : t("text.pair"),
    pairAdd: translates ? t("attention.addTarget") : t("text.add"),
  });

  function asked(state) {
    const text = state.text ?? (translates ? NUMBER : SENTENCE);
    form.show(text, state.pair);
    const part = parts.includes(state.part) ? state.part : parts[0];
    return { part, body: { model: model.name, text, pair: state.pair, part: part === "encoder" ? undefined : part } };
  }

  return { form, parts, asked };
}
