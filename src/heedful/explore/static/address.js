/* What the page shows, as its address says it: `#view?model=…&text=…`. A link is enough to see it again. */

/** {view, values} of the address. */
export function read(hash = location.hash) {
  const [view, query = ""] = hash.replace(/^#/, "").split(/\?(.*)/s);
  return { view, values: Object.fromEntries(new URLSearchParams(query)) };
}

/** The link of a view with values; those that are undefined or empty are left out. */
export function link(view, values) {
  const told = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const query = new URLSearchParams(told.map(([key, value]) => [key, String(value)])).toString();
  return `#${view}${query ? `?${query}` : ""}`;
}

/** Go to a view: as a new step of the browser's history, or in place of the present one. */
export function go(view, values, replace = false) {
  const hash = link(view, values);
  if (hash === location.hash) return;
  history[replace ? "replaceState" : "pushState"](null, "", hash);
}
