"use strict";
// Curves with bands, drawn as SVG from the page's own data. The functions up to `draw` know nothing of the page.

const WIDTH = 860, HEIGHT = 420, LEFT = 64, RIGHT = 12, TOP = 14, BOTTOM = 46;
const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#888888"];
const DASHES = ["", "7 3", "2 3", "9 3 2 3"];  // tell neighbours apart without colours; 28 settings until both come round

/** Round numbers that divide [low, high] into about `count` parts. */
function ticks(low, high, count) {
  if (!(high - low > 1e-9 * Math.max(Math.abs(high), Math.abs(low)))) return [low];  // all one value, but for rounding
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const found = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + 1e-9 * step; n++) found.push(Number((n * step).toPrecision(12)));
  return found;
}

/** A number as a reader wants it: 1.2M, 0.034, 71.3. */
function short(number) {
  const rounded = Number(number.toPrecision(Math.abs(number) < 1e4 ? 4 : 3)), size = Math.abs(rounded);
  for (const [unit, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    const scaled = unit === 1e4 ? 1e3 : unit;
    if (size >= unit) return Number((rounded / scaled).toPrecision(3)) + letter;
  }
  return String(rounded);
}

/** The points of one curve: [{x, mean, std, round}], gaps left out as null. */
function points(setting, metric, against, factor) {
  const values = setting.metrics[metric];
  if (!values) return [];
  return values.at.map((place, n) => {
    const x = setting.x[against][place], mean = values.mean[n], round = setting.rounds[place];
    return x === null || mean === null ? null : {x, mean: factor * mean, std: factor * values.std[n], round};
  });
}

/** The curve cut at its gaps. */
function pieces(curve) {
  const found = [[]];
  for (const point of curve) {
    if (point !== null) found[found.length - 1].push(point);
    else if (found[found.length - 1].length) found.push([]);
  }
  return found.filter((piece) => piece.length);
}

/** Where a logarithmic axis is marked: at powers of ten, and at 2 and 5 times those where there are few. */
function logTicks(low, high) {
  const found = [];
  const digits = high / low > 1e3 ? [1] : [1, 2, 5];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
    found.push(...digits.map((digit) => Number((digit * 10 ** power).toPrecision(12))));
  }
  return found.filter((tick) => tick >= low && tick <= high);
}

/** A map from values to pixels. */
function scale(low, high, from, to, logarithmic) {
  const place = logarithmic ? Math.log10 : (value) => value;
  const span = place(high) - place(low) || 1;
  return (value) => from + (to - from) * (place(value) - place(low)) / span;
}

/** The smallest and the largest of some numbers. */
function range(numbers) {
  return numbers.reduce(([low, high], n) => [Math.min(low, n), Math.max(high, n)], [Infinity, -Infinity]);
}

/** The content of the SVG for curves [{name, colour, dash, curve}], and the scale of its x axis. */
function draw(curves, xLabel, yLabel, targets, isLoss) {
  const all = curves.flatMap(({curve}) => curve.filter((point) => point !== null));
  if (!all.length) return {svg: `<text x="${WIDTH / 2}" y="${HEIGHT / 2}" text-anchor="middle">nothing to draw</text>`, x: null};
  const [left, right] = range(all.map((point) => point.x));
  const means = range(all.map((point) => point.mean));
  const logarithmic = isLoss && means[0] > 0 && means[1] > 100 * means[0];
  const spread = range(all.flatMap(({mean, std}) => [mean - std, mean + std]));
  const [bottom, top] = logarithmic ? means : range([...spread, ...targets]);
  const x = scale(left, right, LEFT, WIDTH - RIGHT, false);
  const y = scale(bottom, top, HEIGHT - BOTTOM, TOP, logarithmic);
  const inside = (value) => Math.min(Math.max(y(logarithmic ? Math.max(value, bottom) : value), TOP), HEIGHT - BOTTOM);
  const at = (px, py) => `${px.toFixed(1)},${py.toFixed(1)}`;
  const parts = [];
  const levels = logarithmic
    ? logTicks(bottom, top)
    : ticks(bottom, top, 6);
  for (const level of levels) {
    parts.push(`<line class="grid" x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${y(level)}" y2="${y(level)}"/>`);
    parts.push(`<text x="${LEFT - 8}" y="${y(level) + 4}" text-anchor="end">${short(level)}</text>`);
  }
  for (const tick of ticks(left, right, 8)) {
    parts.push(`<text x="${x(tick)}" y="${HEIGHT - BOTTOM + 18}" text-anchor="middle">${short(tick)}</text>`);
  }
  for (const target of targets) {
    parts.push(`<line class="target" x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${y(target)}" y2="${y(target)}"/>`);
  }
  for (const {colour, dash, curve} of curves) {
    for (const piece of pieces(curve)) {
      if (piece.some((point) => point.std > 0)) {
        const above = piece.map((point) => at(x(point.x), inside(point.mean + point.std)));
        const below = piece.map((point) => at(x(point.x), inside(point.mean - point.std))).reverse();
        parts.push(`<polygon class="band" fill="${colour}" points="${above.concat(below).join(" ")}"/>`);
      }
      const line = piece.map((point) => at(x(point.x), y(point.mean))).join(" ");
      parts.push(piece.length > 1
        ? `<polyline class="line" stroke="${colour}" stroke-dasharray="${dash}" points="${line}"/>`
        : `<circle r="3" fill="${colour}" cx="${x(piece[0].x)}" cy="${y(piece[0].mean)}"/>`);
    }
  }
  const middle = (TOP + HEIGHT - BOTTOM) / 2;
  parts.push(`<text x="${(LEFT + WIDTH - RIGHT) / 2}" y="${HEIGHT - 8}" text-anchor="middle">${escaped(xLabel)}</text>`);
  parts.push(`<text transform="translate(14 ${middle}) rotate(-90)" text-anchor="middle">${escaped(yLabel)}</text>`);
  return {svg: parts.join(""), x};
}

function escaped(text) {
  return text.replace(/[&<>"]/g, (character) => `&#${character.charCodeAt(0)};`);
}

/** The point of a curve whose place on the x axis is nearest to a pixel. */
function nearest(curve, pixel, x) {
  const known = curve.filter((point) => point !== null);
  return known.reduce((best, point) => Math.abs(x(point.x) - pixel) < Math.abs(x(best.x) - pixel) ? point : best, known[0]);
}

/** How the n-th setting is drawn. */
function look(n) {
  return {colour: COLOURS[n % COLOURS.length], dash: DASHES[n % DASHES.length]};
}

/** The page: selectors, legend and cursor. What is chosen stands in the address, so that it can be linked to. */
function start(data) {
  const find = (id) => document.getElementById(id);
  const metric = find("metric"), against = find("against"), plot = find("plot"), legend = find("legend"), values = find("values");
  const hidden = new Set();
  let drawn = {curves: [], x: null};

  const offer = (select, options) => select.append(...options.map(([value, text]) => new Option(text, value)));
  offer(metric, data.metrics.map(({key, name}) => [key, name]));
  offer(against, Object.entries(data.axes));
  data.settings.forEach((setting, n) => {
    const label = document.createElement("label"), box = document.createElement("input");
    const swatch = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    box.type = "checkbox";
    box.checked = true;
    box.addEventListener("change", () => { box.checked ? hidden.delete(n) : hidden.add(n); show(); });
    const {colour, dash} = look(n);
    swatch.setAttribute("viewBox", "0 0 28 8");
    swatch.setAttribute("aria-hidden", "true");
    swatch.innerHTML = `<line class="line" x1="0" x2="28" y1="4" y2="4" stroke="${colour}" stroke-dasharray="${dash}"/>`;
    label.append(box, swatch, setting.name);
    legend.append(label);
  });

  function show() {
    if (!data.metrics.length) return;
    const {key, name, share, loss, targets} = data.metrics.find((entry) => entry.key === metric.value);
    const factor = share ? 100 : 1;
    const curves = data.settings
      .map((setting, n) => ({
        name: setting.name,
        ...look(n),
        curve: points(setting, key, against.value, factor),
        n,
      }))
      .filter(({n, curve}) => !hidden.has(n) && curve.some((point) => point !== null));
    const label = share ? `${name} (%)` : name;
    const {svg, x} = draw(curves, data.axes[against.value], label, targets.map((target) => factor * target), loss);
    plot.innerHTML = svg;
    drawn = {curves, x};
    plot.setAttribute("aria-label", `${label} against ${data.axes[against.value]}, ${curves.length} curves; arrow keys read values`);
    values.textContent = "";
  }

  function point(event) {
    const box = plot.getBoundingClientRect();
    cursor((event.clientX - box.left) * WIDTH / box.width);
  }

  function step(event) {
    const way = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (!way) return;
    event.preventDefault();
    const before = Number(plot.querySelector(".cursor")?.getAttribute("x1") ?? (way > 0 ? LEFT : WIDTH - RIGHT));
    cursor(Math.min(Math.max(before + 8 * way, LEFT), WIDTH - RIGHT));
  }

  /** A line at a pixel of the x axis, and all curves' values there. */
  function cursor(pixel) {
    if (drawn.x === null) return;
    plot.querySelector(".cursor")?.remove();
    const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
    for (const [key, value] of Object.entries({class: "cursor", x1: pixel, x2: pixel, y1: TOP, y2: HEIGHT - BOTTOM})) line.setAttribute(key, value);
    plot.append(line);
    values.textContent = drawn.curves
      .map(({name, curve}) => ({name, point: nearest(curve, pixel, drawn.x)}))
      .map(({name, point}) => `${name}: ${short(point.mean)} ± ${short(point.std)} in round ${point.round}`)
      .join("\n");
  }

  function remember() {
    history.replaceState(null, "", `#${new URLSearchParams({metric: metric.value, against: against.value})}`);
    show();
  }

  const wanted = new URLSearchParams(location.hash.slice(1));
  for (const [select, name] of [[metric, "metric"], [against, "against"]]) {
    if ([...select.options].some((option) => option.value === wanted.get(name))) select.value = wanted.get(name);
    select.addEventListener("change", remember);
  }
  plot.addEventListener("pointermove", point);
  plot.addEventListener("keydown", step);
  show();
}

if (typeof document !== "undefined") start(JSON.parse(document.getElementById("data").textContent));
if (typeof module !== "undefined") module.exports = {ticks, logTicks, short, points, pieces, scale, draw, nearest};
