/* Reports of training runs as curves: gathered as they come, smoothed, and thinned out to what a screen can show. */

const MOST_POINTS = 1500;
const PIECE = 3_000_000;
const NEVER = new Set(["kind", "step", "tokens", "images", "elapsed"]);
const FALLING = /loss|perplexity|rmse|mae$|error/;

/** What is known of a run: `read(ask)` asks for what is new, and tells whether there was anything. */
export function followed(name) {
  const path = `/explore/runs/${name.split("/").map(encodeURIComponent).join("/")}`;
  const run = { name, rows: [], metrics: new Set(), samples: [], heard: 0, state: null, next: 0, samplesNext: 0 };
  run.read = async (ask) => {
    let news = false;
    for (;;) {
      const answer = await ask(`${path}?since=${run.next}&samples_since=${run.samplesNext}`);
      if (answer.since < run.next) run.rows = [];
      if (answer.samples_since < run.samplesNext) run.samples = [];
      answer.rows.forEach((row) => add(run, row));
      answer.samples.forEach((sample) => (run.samples = later(run.samples, sample)));
      run.heard += answer.samples.length;
      news ||= answer.rows.length > 0 || answer.samples.length > 0 || answer.state !== run.state;
      Object.assign(run, { next: answer.next, samplesNext: answer.samples_next, state: answer.state });
      const read = Math.max(answer.next - answer.since, answer.samples_next - answer.samples_since);
      if (read < PIECE) return news;
    }
  };
  return run;
}

/** What is told in order, with one more. A resumed run tells some again: what came after where it went on is gone. */
function later(told, one) {
  const kept = told.length && one.step < told.at(-1).step ? told.filter(({ step }) => step < one.step) : told;
  kept.push(one);
  return kept;
}

function add(run, row) {
  run.rows = later(run.rows, row);
  for (const key of Object.keys(row)) {
    if (!NEVER.has(key) && typeof row[key] === "number") run.metrics.add(key);
  }
}

/** Names of numbers that the runs report, loss first. */
export function metricsOf(runs) {
  const found = new Set(runs.flatMap((run) => [...run.metrics]));
  return [...found].sort((a, b) => (b === "loss") - (a === "loss"));
}

/** The points {x, y} of a metric in reports of one kind. */
export function curve(run, kind, metric, across) {
  const told = (row) => [metric, across].every((name) => typeof row[name] === "number");
  const rows = run.rows.filter((row) => row.kind === kind && told(row));
  return { x: rows.map((row) => row[across]), y: rows.map((row) => row[metric]) };
}

/** An exponential mean of what came before, without the pull of its beginning; `weight` 0 changes nothing. */
export function smoothed(values, weight) {
  let mean = 0;
  let share = 1;
  return values.map((value) => {
    mean = weight * mean + (1 - weight) * value;
    share *= weight;
    return mean / (1 - share);
  });
}

/** At most so many points: of each stretch the lowest and the highest, so that no spike is lost; and the last. */
export function thinned({ x, y }, most = MOST_POINTS) {
  if (x.length <= most) return { x, y };
  const size = Math.ceil((2 * x.length) / (most - 1));
  const kept = [];
  for (let start = 0; start < x.length; start += size) {
    const end = Math.min(start + size, x.length);
    let [low, high] = [start, start];
    for (let i = start; i < end; i++) {
      if (y[i] < y[low]) low = i;
      if (y[i] > y[high]) high = i;
    }
    kept.push(...new Set([Math.min(low, high), Math.max(low, high)]));
  }
  if (kept.at(-1) !== x.length - 1) kept.push(x.length - 1);
  return { x: kept.map((i) => x[i]), y: kept.map((i) => y[i]) };
}

/** The best of some values of a metric, or undefined: the least of a loss, the most of a score. */
export function best(metric, values) {
  if (!values.length) return undefined;
  return values.reduce((one, other) => (FALLING.test(metric) === other < one ? other : one));
}
