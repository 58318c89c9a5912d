/* What this browser keeps between visits: the language, the theme. Pages opened from a file may keep nothing. */

/** What was kept under a name, or null. */
export function kept(name, storage = "localStorage") {
  try {
    return window[storage].getItem(`heedful.${name}`);
  } catch {
    return null;
  }
}

/** Keep a value under a name; null forgets it. */
export function keep(name, value, storage = "localStorage") {
  try {
    if (value === null) window[storage].removeItem(`heedful.${name}`);
    else window[storage].setItem(`heedful.${name}`, value);
  } catch {
    // Nothing is kept then, and the page works all the same.
  }
}
