/* Charts by plotly.js, which is fetched from our own server when the first one is drawn. */

import { colour } from "heedful/theme.js";

let fetched = null;

function plotly() {
  if (window.Plotly) return window.Plotly;
  fetched ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = "static/plotly.min.js";
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => {
      fetched = null;
      reject(new Error("plotly.min.js"));
    };
    document.head.append(script);
  });
  return fetched;
}

/** Draw traces into an element, in the colours of the page. Axes are {x: title, y: title}, with `log` where y is
logarithmic and a `format` for its numbers. */
export async function chart(element, traces, axes, layout = {}) {
  const drawn = await plotly();
  const lines = { gridcolor: colour("line"), zerolinecolor: colour("line"), automargin: true };
  const axis = (title) => ({ title: { text: title }, ...lines });
  const accent = [colour("accent"), colour("other"), colour("soft"), colour("ink")];
  await drawn.react(element, traces, {
    colorway: accent,
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: colour("soft") },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: 56, r: 12, t: 8, b: 48 },
    height: 320,
    showlegend: traces.length > 1,
    legend: { orientation: "h", y: 1.12 },
    hovermode: "x unified",
    hoverlabel: { bgcolor: colour("surface"), font: { color: colour("ink") } },
    xaxis: axis(axes.x),
    yaxis: { ...axis(axes.y), ...(axes.log && { type: "log" }), ...(axes.format && { tickformat: axes.format }) },
    ...layout,
  }, { displayModeBar: false, responsive: true });
}
