"use strict";
// The page: controls, curves, legend and sortable tables. The choices are in the address, so that they can be linked to.

const LISTED = 8;  // curves whose values are shown at the pointer

function start(data) {
  const find = (id) => document.getElementById(id);
  const [plot, tip, filter, legend] = ["plot", "tip", "filter", "legend"].map(find);
  const wanted = new URLSearchParams(location.hash.slice(1));
  const metricKeys = data.metrics.map(({key}) => key);
  const chosen = (name, allowed) => allowed.includes(wanted.get(name)) ? wanted.get(name) : allowed[0];
  const state = {
    metric: chosen("metric", metricKeys),
    against: chosen("against", Object.keys(data.axes)),
    logX: wanted.get("logX") === "1",
    logY: wanted.has("logY") ? wanted.get("logY") === "1" : null,  // null: automatic, for losses
    smooth: Math.min(Math.max(Number(wanted.get("smooth")) || 0, 0), 0.99),
    keys: chosenKeys(wanted.get("keys"), data.keys),
    filter: wanted.get("filter") ?? "",
    hidden: new Set(),  // names of curves
    sort: {by: null, down: false},
    zoom: null,  // {x: [low, high], y: [low, high]}
  };
  let shown = {curves: [], groups: [], view: null, x: null, y: null};

  const metric = () => data.metrics.find(({key}) => key === state.metric);
  const factor = () => metric().share ? 100 : 1;
  const written = (value) => metric().share ? (100 * value).toFixed(2) : value === 0 || (Math.abs(value) >= 1e-3 && Math.abs(value) < 1e4) ? value.toFixed(4) : short(value);

  /** Name, place and curve of every group of runs that the filter accepts. */
  function groups() {
    return grouped(data.runs.filter((run) => matches(run, state.filter)), state.keys)
      .map((group, n) => ({...group, ...look(n), points: curve(group.runs, state.metric, state.against, factor())}))
      .filter(({points}) => points.some((point) => point !== null));
  }

  function calculate() {
    shown.groups = data.metrics.length ? groups() : [];
    fillLegend();
    fillTables();
    redraw();
  }

  /** Draw the curves that are not hidden. */
  function redraw() {
    tip.hidden = true;
    if (!data.metrics.length) return;
    const {name, share, loss, targets} = metric();
    const visible = shown.groups.filter((group) => !state.hidden.has(group.name));
    const logY = state.logY ?? (loss && wantsLog(visible));
    find("logY").checked = logY;
    if (shown.view && shown.view.logY !== logY) state.zoom = null;  // its range may not be positive
    const behind = state.smooth > 0 && visible.length <= FAINT;
    const curves = visible.map((group) => {
      const points = positive(group.points, state.logX, logY);
      return {...group, points: smoothed(points, state.smooth), behind: behind ? points : null};
    });
    const marked = targets.map(({share, name}) => ({value: factor() * share, name}));
    const bounds = behind ? curves.concat(curves.map(({behind}) => ({points: behind}))) : curves;
    const whole = extent(bounds, marked.map(({value}) => value), logY);
    const width = plot.clientWidth, height = plot.clientHeight;
    plot.setAttribute("viewBox", `0 0 ${width} ${height}`);
    if (whole === null) {
      plot.innerHTML = `<text x="${width / 2}" y="${height / 2}" text-anchor="middle">nothing to draw</text>`;
      shown = {...shown, curves: [], view: null};
      return;
    }
    const view = {
      width, height, logX: state.logX, logY, ...whole, ...state.zoom, targets: marked,
      xLabel: data.axes[state.against],
      yLabel: `${name}${share ? " (%)" : ""}${state.smooth ? ", smoothed" : ""}`,
    };
    const {svg, x, y} = draw(curves, view);
    plot.innerHTML = svg;
    shown = {...shown, curves, view, x, y};
    plot.setAttribute("aria-label", `${view.yLabel} against ${view.xLabel}, ${curves.length} curves; arrow keys read values`);
  }

  /** Put the choice into the address. */
  function remember() {
    const {metric, against, logX, logY, smooth, keys, filter} = state;
    const words = new URLSearchParams({metric: metric ?? "", against});
    if (logX) words.set("logX", "1");
    if (logY !== null) words.set("logY", logY ? "1" : "0");
    if (smooth) words.set("smooth", smooth);
    if (keys.join() !== "setting") words.set("keys", keys.join());
    if (filter) words.set("filter", filter);
    history.replaceState(null, "", `#${words}`);
  }

  function change(changes) {
    const again = ["metric", "against", "keys", "filter"].some((key) => key in changes);
    Object.assign(state, changes, again ? {zoom: null} : {});
    remember();
    again ? calculate() : redraw();
  }

  // The legend: a row per curve, sorted by any column.

  function summary(runs, key) {
    return spread(runs.map((run) => run.metrics[state.metric]?.[key] ?? null));
  }

  function fillLegend() {
    const {by, down} = state.sort;
    const rows = shown.groups.map((group) => ({group, last: summary(group.runs, "last"), best: summary(group.runs, "best")}));
    const value = {
      name: ({group}) => group.name, runs: ({group}) => String(group.runs.length),
      last: ({last}) => last === null ? "-" : String(last.mean), best: ({best}) => best === null ? "-" : String(best.mean),
    }[by];
    if (by) rows.sort((one, other) => (down ? -1 : 1) * compared(value(one), value(other)));
    legend.tBodies[0].replaceChildren(...rows.map(({group, last, best}) => {
      const row = document.createElement("tr"), label = document.createElement("label"), box = document.createElement("input");
      const swatch = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      box.type = "checkbox";
      box.checked = !state.hidden.has(group.name);
      box.addEventListener("change", () => {
        box.checked ? state.hidden.delete(group.name) : state.hidden.add(group.name);
        checkEvery();
        redraw();
      });
      swatch.setAttribute("viewBox", "0 0 28 8");
      swatch.setAttribute("aria-hidden", "true");
      swatch.innerHTML = `<line class="line" x1="0" x2="28" y1="4" y2="4" stroke="${group.colour}" stroke-dasharray="${group.dash}"/>`;
      label.append(box, swatch, group.name);
      label.title = group.name;
      const name = document.createElement("th");
      name.scope = "row";
      name.append(label);
      row.dataset.name = group.name;
      row.append(name, ...[String(group.runs.length), withStd(last), withStd(best)].map((text) => {
        const cell = document.createElement("td");
        cell.textContent = text;
        return cell;
      }));
      row.addEventListener("pointerenter", () => emphasise(group.name));
      row.addEventListener("pointerleave", () => emphasise(null));
      return row;
    }));
    checkEvery();
  }

  function withStd(numbers) {
    if (numbers === null) return "-";
    return numbers.std > 0 ? `${written(numbers.mean)} ± ${written(numbers.std)}` : written(numbers.mean);
  }

  function checkEvery() {
    const box = find("every"), count = shown.groups.filter(({name}) => state.hidden.has(name)).length;
    box.checked = count === 0;
    box.indeterminate = count > 0 && count < shown.groups.length;
  }

  /** Thicken one curve and mark its row. */
  function emphasise(name) {
    plot.querySelectorAll(".near").forEach((line) => line.classList.remove("near"));
    legend.querySelectorAll("tr.near").forEach((row) => row.classList.remove("near"));
    const number = shown.curves.findIndex((one) => one.name === name);
    if (number < 0) return;
    plot.querySelectorAll(`[data-curve="${number}"]`).forEach((line) => line.classList.add("near"));
    [...legend.tBodies[0].rows].find((row) => row.dataset.name === name)?.classList.add("near");
  }

  // The other tables: sorted by a column, filtered as the curves are.

  const tables = [...document.querySelectorAll("section:not(#curves) table")];
  for (const table of tables) {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const down = turned(head);
        const rows = [...table.tBodies[0].rows];
        rows.sort((one, other) => (down ? -1 : 1) * compared(one.cells[column].textContent, other.cells[column].textContent));
        table.tBodies[0].append(...rows);
      });
    });
  }

  /** Mark a heading as the one that sorts its table; return whether it now sorts downwards. */
  function turned(head) {
    const down = head.getAttribute("aria-sort") === "ascending";
    head.parentElement.querySelectorAll("[aria-sort]").forEach((one) => one.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    return down;
  }

  function fillTables() {
    const all = new Set(data.runs.map((run) => run.values.setting));
    const left = new Set(data.runs.filter((run) => matches(run, state.filter)).map((run) => run.values.setting));
    const excluded = ({textContent}) => all.has(textContent) && !left.has(textContent);
    for (const table of tables) {
      for (const row of table.tBodies[0].rows) row.hidden = excluded(row.cells[0]);
      [...table.tHead.rows[0].cells].forEach((head, column) => {  // a setting is a column where keys are more than settings
        if (all.has(head.textContent)) for (const row of table.rows) row.cells[column].hidden = excluded(head);
      });
    }
  }

  // The pointer: values next to it; dragging zooms or pans.

  let begun = null;  // the beginning of a drag: {x, y, view}

  const pixel = (event) => {
    const box = plot.getBoundingClientRect();
    return {x: event.clientX - box.left, y: event.clientY - box.top};
  };

  function addShape(name, attributes) {
    plot.querySelector(`.${attributes.class}`)?.remove();
    const shape = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) shape.setAttribute(key, value);
    plot.append(shape);
  }

  /** A line at a pixel of the x axis, and next to it the values of the curves nearest to the pointer. */
  function cursor(at) {
    if (shown.view === null) return;
    const {width, height} = shown.view;
    const px = Math.min(Math.max(at.x, LEFT), width - RIGHT);
    addShape("line", {class: "cursor", x1: px, x2: px, y1: TOP, y2: height - BOTTOM});
    const values = shown.curves
      .map((one) => ({...one, point: nearest(one.points, px, shown.x)}))
      .filter(({point}) => point && Math.abs(shown.x(point.x) - px) < 40)
      .map((one) => ({...one, away: Math.abs(shown.y(one.point.mean) - at.y)}))
      .sort((one, other) => one.away - other.away);
    const closest = values[0];
    const listed = values.slice(0, LISTED).sort((one, other) => other.point.mean - one.point.mean);
    emphasise(shown.curves.length > 1 ? closest?.name : null);
    tip.replaceChildren(...listed.map((one) => {
      const line = document.createElement("div"), dot = document.createElement("i");
      dot.style.background = one.colour;
      const spread = one.point.std > 0 ? ` ± ${short(one.point.std)}` : "";
      line.append(dot, `${short(one.point.mean)}${spread}  ${one.name}, round ${one.point.round}`);
      line.className = one === closest ? "closest" : "";
      return line;
    }));
    if (values.length > LISTED) tip.append(`and ${values.length - LISTED} more`);
    tip.hidden = !values.length;
    tip.style.left = 0;  // at its full width, to measure it
    const beside = px < width / 2 ? px + 14 : px - 14 - tip.offsetWidth;
    tip.style.left = `${Math.max(0, Math.min(beside, width - tip.offsetWidth))}px`;
    tip.style.top = `${Math.max(0, Math.min(at.y + 8, height - BOTTOM - tip.offsetHeight))}px`;
  }

  plot.addEventListener("pointerdown", (event) => {
    if (shown.view === null || event.button !== 0) return;
    begun = {...pixel(event), view: shown.view, pan: find("drag").value === "pan" || event.shiftKey};
    if (event.isTrusted) plot.setPointerCapture(event.pointerId);
  });
  plot.addEventListener("pointermove", (event) => {
    const at = pixel(event);
    if (begun === null) return cursor(at);
    tip.hidden = true;
    if (begun.pan) {
      const {x, y, logX, logY, width, height} = begun.view;
      const right = (begun.x - at.x) / (width - LEFT - RIGHT), up = (at.y - begun.y) / (height - TOP - BOTTOM);
      state.zoom = {x: moved(x, right, 1, logX), y: moved(y, up, 1, logY)};
      return redraw();
    }
    const [left, right] = range([begun.x, at.x]), [top, bottom] = range([begun.y, at.y]);
    addShape("rect", {class: "box", x: left, y: top, width: right - left, height: bottom - top});
  });
  plot.addEventListener("pointerup", (event) => {
    const from = begun, at = pixel(event);
    begun = null;
    plot.querySelector(".box")?.remove();
    if (from === null || from.pan) return;
    const far = {x: Math.abs(at.x - from.x) > 8, y: Math.abs(at.y - from.y) > 8};
    if (!far.x && !far.y) return cursor(at);  // a tap: a finger does not hover
    const {view, x, y} = shown;  // a drag along one axis does not change the other one
    state.zoom = {
      x: far.x ? range([from.x, at.x]).map(x.value) : view.x,
      y: far.y ? range([from.y, at.y]).map(y.value).reverse() : view.y,
    };
    redraw();
  });
  plot.addEventListener("pointercancel", () => { begun = null; plot.querySelector(".box")?.remove(); });
  plot.addEventListener("pointerleave", (event) => {
    if (event.pointerType === "touch") return;  // it follows every tap
    tip.hidden = true;
    emphasise(null);
    plot.querySelector(".cursor")?.remove();
  });
  plot.addEventListener("dblclick", () => { state.zoom = null; redraw(); });
  plot.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;  // without it the wheel scrolls the page
    event.preventDefault();
    zoomBy(event.deltaY > 0 ? 1.25 : 0.8, pixel(event));
  }, {passive: false});
  plot.addEventListener("keydown", (event) => {
    const way = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (!way || shown.view === null) return;
    event.preventDefault();
    const {width, height} = shown.view;
    const before = Number(plot.querySelector(".cursor")?.getAttribute("x1") ?? (way > 0 ? LEFT : width - RIGHT));
    cursor({x: before + 8 * way, y: height / 2});
  });

  /** Widen the shown range by a factor, around a pixel or the middle. */
  function zoomBy(factor, at) {
    if (shown.view === null) return;
    const {x, y, logX, logY, width, height} = shown.view;
    const right = at ? (at.x - LEFT) / (width - LEFT - RIGHT) : 0.5, up = at ? (height - BOTTOM - at.y) / (height - TOP - BOTTOM) : 0.5;
    state.zoom = {x: moved(x, 0, factor, logX, right), y: moved(y, 0, factor, logY, up)};
    redraw();
  }

  // The controls.

  const offer = (select, options, value) => {
    select.append(...options.map(([key, text]) => new Option(text, key)));
    if (value) select.value = value;
  };
  offer(find("metric"), data.metrics.map(({key, name}) => [key, name]), state.metric);
  offer(find("against"), Object.entries(data.axes), state.against);
  filter.value = state.filter;
  find("logX").checked = state.logX;
  find("smooth").value = state.smooth;
  find("metric").addEventListener("change", (event) => change({metric: event.target.value, logY: null}));
  find("against").addEventListener("change", (event) => change({against: event.target.value}));
  find("logX").addEventListener("change", (event) => change({logX: event.target.checked, zoom: null}));
  find("logY").addEventListener("change", (event) => change({logY: event.target.checked, zoom: null}));
  find("smooth").addEventListener("input", (event) => change({smooth: Number(event.target.value)}));
  filter.addEventListener("input", () => change({filter: filter.value}));
  find("in").addEventListener("click", () => zoomBy(0.7));
  find("out").addEventListener("click", () => zoomBy(1 / 0.7));
  find("reset").addEventListener("click", () => { state.zoom = null; redraw(); });
  find("drag").addEventListener("change", (event) => plot.classList.toggle("pan", event.target.value === "pan"));
  find("every").addEventListener("change", (event) => {
    shown.groups.forEach(({name}) => event.target.checked ? state.hidden.delete(name) : state.hidden.add(name));
    fillLegend();
    redraw();
  });
  legend.tHead.addEventListener("click", (event) => {
    const by = event.target.dataset.sort;
    if (!by) return;
    state.sort = {by, down: turned(event.target.closest("th"))};
    fillLegend();
  });
  const boxes = data.keys.map((key) => {
    const label = document.createElement("label"), box = document.createElement("input");
    box.type = "checkbox";
    box.value = key;
    box.checked = state.keys.includes(key);
    box.addEventListener("change", () => {
      change({keys: boxes.filter(({checked}) => checked).map(({value}) => value), hidden: new Set()});
      nameGrouping();
    });
    label.append(box, ` ${key}`);
    find("keys").append(label);
    return box;
  });
  function nameGrouping() {
    find("grouped").textContent = state.keys.join(", ") || "all runs together";
  }
  nameGrouping();
  calculate();
  new ResizeObserver(() => { if (plot.clientWidth !== shown.view?.width) redraw(); }).observe(find("frame"));
}

start(JSON.parse(document.getElementById("data").textContent));
