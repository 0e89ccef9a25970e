"use strict";
// The arithmetic and the SVG of the curves. Nothing here knows the page's elements.

const LEFT = 56, RIGHT = 16, TOP = 16, BOTTOM = 44;
const NAME = 13;  // pixels from one line of a name to the next
const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#888888"];
const DASHES = ["", "7 3", "2 3", "9 3 2 3"];  // distinguish neighbours without colours; 28 curves until both repeat
const CROWD = 28;  // more curves than this are thin
const FAINT = 10;  // up to so many smoothed curves have their measured values drawn behind them

/** Round numbers that divide [low, high] into about `count` parts. */
function ticks(low, high, count) {
  if (!(high - low > 1e-9 * Math.max(Math.abs(high), Math.abs(low)))) return [low];  // a single value, except for rounding
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const found = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + 1e-9 * step; n++) found.push(Number((n * step).toPrecision(12)));
  return found;
}

/** The marks of a logarithmic axis: at powers of ten, and at 2 and 5 times those if there are few. */
function logTicks(low, high) {
  const found = [];
  const digits = high / low > 1e3 ? [1] : [1, 2, 5];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
    found.push(...digits.map((digit) => Number((digit * 10 ** power).toPrecision(12))));
  }
  const inside = found.filter((tick) => tick >= low && tick <= high);
  return inside.length > 1 ? inside : ticks(low, high, 4);
}

/** A number for readers: 1.2M, 0.034, 71.3. */
function short(number) {
  const rounded = Number(number.toPrecision(Math.abs(number) < 1e4 ? 4 : 3)), size = Math.abs(rounded);
  for (const [unit, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    const scaled = unit === 1e4 ? 1e3 : unit;
    if (size >= unit) return Number((rounded / scaled).toPrecision(3)) + letter;
  }
  return String(rounded);
}

/** Mean and standard deviation (ddof 0); null if a number is missing. */
function spread(numbers) {
  if (!numbers.length || numbers.some((number) => number === null)) return null;
  const mean = numbers.reduce((sum, number) => sum + number, 0) / numbers.length;
  return {mean, std: Math.sqrt(numbers.reduce((sum, number) => sum + (number - mean) ** 2, 0) / numbers.length)};
}

/** The name of a run in a grouping: its setting's, or the values of some keys. */
function groupName(run, keys) {
  const parts = keys.map((key) => key === "setting" || key === "dataset" || key === "strategy" ? run.values[key] : `${key}=${run.values[key]}`);
  return parts.join(" ") || "all runs";
}

/** The keys that make a curve, as a page's address names them: those that the page has; the setting if it has none of
 *  them, or no address names any. An empty text: all runs together. */
function chosenKeys(text, keys) {
  if (text === "") return [];
  const known = (text ?? "").split(",").filter((key) => keys.includes(key));
  return known.length ? known : ["setting"];
}

/** The runs by the values of some keys: [{name, runs}], in the runs' order. */
function grouped(runs, keys) {
  const groups = new Map();
  for (const run of runs) {
    const name = groupName(run, keys);
    if (groups.has(name)) groups.get(name).push(run);
    else groups.set(name, [run]);
  }
  return [...groups].map(([name, members]) => ({name, runs: members}));
}

/** Whether a run matches the search: every word is in its values, and no word with a minus before it. A value after an
 *  equals sign is a whole one: lr=0.1 does not match lr=0.15. */
function matches(run, words) {
  const text = run.text ??= Object.entries(run.values).map(([key, value]) => `${key}=${value} `).join("").toLowerCase();
  const has = (word) => text.includes(/=./.test(word) ? `${word} ` : word);
  return words.toLowerCase().split(/\s+/).filter(Boolean).every((word) =>
    word.length > 1 && word[0] === "-" ? !has(word.slice(1)) : has(word));
}

/** A run's values of a metric: Map from the round to {x, y}. */
function recorded(run, metric, against) {
  const values = run.metrics[metric], places = against === "rounds" ? run.rounds : run.x[against];
  if (!values || !places) return new Map();
  return new Map(values.y.map((y, n) => {
    const place = values.at ? values.at[n] : n;
    return [run.rounds[place], {x: places[place], y}];
  }));
}

/**
 * The curve of several runs, [{x, mean, std, round}]: at every round in which all of them recorded the metric, null
 * where a value is not finite.
 */
function curve(runs, metric, against, factor) {
  const all = runs.map((run) => recorded(run, metric, against));
  const rounds = [...all[0].keys()].filter((round) => all.every((points) => points.has(round)));
  return rounds.map((round) => {
    const points = all.map((one) => one.get(round));
    const x = spread(points.map((point) => point.x)), y = spread(points.map((point) => point.y));
    return x === null || y === null ? null : {x: x.mean, mean: factor * y.mean, std: factor * y.std, round};
  });
}

/** A curve's running mean, in which the earlier value has `weight` times the newest one's weight; unbiased at its start. */
function smoothed(points, weight) {
  if (!weight) return points;
  let mean = 0, std = 0, sum = 0;
  return points.map((point) => {
    if (point === null) return null;
    mean = weight * mean + point.mean;
    std = weight * std + point.std;
    sum = weight * sum + 1;
    return {...point, mean: mean / sum, std: std / sum};
  });
}

/** A curve without the points that a logarithmic axis cannot show. */
function positive(points, logX, logY) {
  return points.map((point) => point === null || (logX && point.x <= 0) || (logY && point.mean <= 0) ? null : point);
}

/** The curve cut at its gaps. */
function pieces(points) {
  const found = [[]];
  for (const point of points) {
    if (point !== null) found[found.length - 1].push(point);
    else if (found[found.length - 1].length) found.push([]);
  }
  return found.filter((piece) => piece.length);
}

/** A map from values to pixels, and its inverse. */
function scale(low, high, from, to, logarithmic) {
  const place = logarithmic ? Math.log10 : (value) => value;
  const span = place(high) - place(low) || 1;
  const map = (value) => from + (to - from) * (place(value) - place(low)) / span;
  map.value = (pixel) => {
    const value = place(low) + span * (pixel - from) / (to - from);
    return logarithmic ? 10 ** value : value;
  };
  return map;
}

/** The smallest and the largest of some numbers. */
function range(numbers) {
  return numbers.reduce(([low, high], n) => [Math.min(low, n), Math.max(high, n)], [Infinity, -Infinity]);
}

/** The default ranges of the axes: {x: [low, high], y: [low, high]}; null if no curve has a point. */
function extent(curves, targets, logY) {
  const all = curves.flatMap(({points}) => points.filter((point) => point !== null));
  if (!all.length) return null;
  const bands = logY ? all.map(({mean}) => mean) : all.flatMap(({mean, std}) => [mean - std, mean + std]);
  return {x: range(all.map(({x}) => x)), y: range([...bands, ...targets.filter((target) => !logY || target > 0)])};
}

/** Whether a loss is shown on a logarithmic axis by default: its values span more than two decades. */
function wantsLog(curves) {
  const [low, high] = range(curves.flatMap(({points}) => points.filter((point) => point !== null).map(({mean}) => mean)));
  return low > 0 && high > 100 * low;
}

/** A range moved by a share of itself, and widened by a factor around a place in it (0: its start, 1: its end); the
 *  range itself where that would end near the largest numbers, or a logarithmic axis near 0. */
function moved([low, high], share, factor, logarithmic, around = 0.5) {
  const pixel = scale(low, high, 0, 1, logarithmic);
  const begin = around + share - around * factor;
  const ends = [pixel.value(begin), pixel.value(begin + factor)];
  return ends.every((end) => Math.abs(end) < 1e300 && (!logarithmic || end > 1e-300)) ? ends : [low, high];
}

function escaped(text) {
  return text.replace(/[&<>"]/g, (character) => `&#${character.charCodeAt(0)};`);
}

/** How the n-th curve is drawn. */
function look(n) {
  return {colour: COLOURS[n % COLOURS.length], dash: DASHES[n % DASHES.length]};
}

/**
 * The content of the SVG, and the scales of its axes.
 *
 * curves: [{colour, dash, points, behind}]; view: {width, height, x, y, logX, logY, xLabel, yLabel, targets: [{value, name}]}.
 */
function draw(curves, view) {
  const {width, height, logX, logY} = view;
  const x = scale(...view.x, LEFT, width - RIGHT, logX), y = scale(...view.y, height - BOTTOM, TOP, logY);
  const at = (px, py) => `${px.toFixed(1)},${py.toFixed(1)}`;
  const parts = [`<clipPath id="inside"><rect x="${LEFT}" y="${TOP - 2}" width="${width - LEFT - RIGHT + 2}" height="${height - TOP - BOTTOM + 4}"/></clipPath>`];
  const marks = (range, logarithmic, count) => logarithmic ? logTicks(...range) : ticks(...range, count);
  for (const level of marks(view.y, logY, Math.max(3, height / 70))) {
    parts.push(`<line class="grid" x1="${LEFT}" x2="${width - RIGHT}" y1="${y(level)}" y2="${y(level)}"/>`);
    parts.push(`<text x="${LEFT - 7}" y="${y(level) + 4}" text-anchor="end">${short(level)}</text>`);
  }
  const columns = marks(view.x, logX, Math.max(3, width / 110));
  const every = Math.ceil(columns.length * 48 / width);  // a label is up to 48 pixels wide
  for (const [n, tick] of columns.entries()) {
    parts.push(`<line class="tick" x1="${x(tick)}" x2="${x(tick)}" y1="${height - BOTTOM}" y2="${height - BOTTOM + 4}"/>`);
    if (n % every === 0) parts.push(`<text x="${x(tick)}" y="${height - BOTTOM + 17}" text-anchor="middle">${short(tick)}</text>`);
  }
  parts.push(`<g clip-path="url(#inside)"${curves.length > CROWD ? ' class="crowd"' : ""}>`);
  const low = logY ? view.y[0] / 1e3 : -Infinity;  // a logarithmic axis cannot show a band's end below 0
  for (const [n, {colour, dash, points, behind}] of curves.entries()) {
    for (const piece of pieces(behind ?? [])) {
      parts.push(`<polyline class="behind" stroke="${colour}" points="${piece.map((point) => at(x(point.x), y(point.mean))).join(" ")}"/>`);
    }
    for (const piece of pieces(points)) {
      if (piece.some((point) => point.std > 0)) {
        const above = piece.map((point) => at(x(point.x), y(point.mean + point.std)));
        const below = piece.map((point) => at(x(point.x), y(Math.max(point.mean - point.std, low)))).reverse();
        parts.push(`<polygon class="band" fill="${colour}" points="${above.concat(below).join(" ")}"/>`);
      }
      const line = piece.map((point) => at(x(point.x), y(point.mean))).join(" ");
      parts.push(piece.length > 1
        ? `<polyline class="line" data-curve="${n}" stroke="${colour}" stroke-dasharray="${dash}" points="${line}"/>`
        : `<circle class="line" data-curve="${n}" r="3" fill="${colour}" cx="${x(piece[0].x)}" cy="${y(piece[0].mean)}"/>`);
    }
  }
  parts.push("</g>");
  const visible = view.targets.filter(({value}) => value >= view.y[0] && value <= view.y[1]);
  const named = [];  // the names at each place: those that would lie on one another share one
  for (const {value, name} of visible.sort((one, other) => one.value - other.value)) {
    parts.push(`<line class="target" x1="${LEFT}" x2="${width - RIGHT}" y1="${y(value)}" y2="${y(value)}"/>`);
    const names = named.length && named.at(-1).place - y(value) < NAME ? named.pop().names : [];
    named.push({place: y(value), names: [...names, name]});
  }
  for (const {place, names} of named) {
    parts.push(`<text class="named" x="${LEFT + 4}" y="${place - 4}">${escaped(names.join(", "))}</text>`);
  }
  const middle = (TOP + height - BOTTOM) / 2;
  parts.push(`<text class="axis" x="${(LEFT + width - RIGHT) / 2}" y="${height - 8}" text-anchor="middle">${escaped(view.xLabel)}</text>`);
  parts.push(`<text class="axis" transform="translate(12 ${middle}) rotate(-90)" text-anchor="middle">${escaped(view.yLabel)}</text>`);
  return {svg: parts.join(""), x, y};
}

/** The point of a curve whose place on the x axis is nearest to a pixel; undefined if it has none. */
function nearest(points, pixel, x) {
  const known = points.filter((point) => point !== null);
  return known.reduce((best, point) => Math.abs(x(point.x) - pixel) < Math.abs(x(best.x) - pixel) ? point : best, known[0]);
}

/**
 * The number at the beginning of a table's cell, by which it is sorted: ">200" above 200; "-" above all, as is
 * ">200 rounds" among seconds; else null.
 */
function sortValue(text) {
  if (text === "-" || /^>.* rounds$/.test(text)) return Infinity;
  const number = /^(>?)([+\u2212-]?[\d,]*\.?\d+(?:e[+-]?\d+)?)/i.exec(text.trim());
  return number ? Number(number[2].replaceAll(",", "").replace("\u2212", "-")) + (number[1] ? 0.5 : 0) : null;
}

/** Negative if a cell comes before another: numbers by size, before texts; texts by their letters. */
function compared(one, other) {
  const [first, second] = [sortValue(one), sortValue(other)];
  if (first !== null && second !== null) return first === second ? 0 : first - second;
  return (second !== null) - (first !== null) || one.localeCompare(other);
}

if (typeof module !== "undefined") {
  module.exports = {ticks, logTicks, short, spread, chosenKeys, grouped, matches, curve, smoothed, positive, pieces, scale, extent, wantsLog, moved, draw, nearest, sortValue, compared};
}
