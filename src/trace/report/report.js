// Totals, tables and the chart over time.
const kinds = [["reads", "--read", "reads"], ["writes", "--write", "writes"],
               ["protections", "--protection", "first writes to clean pages"]];
// Beside the misses; a line has none of these in its bar.
const kindsOverTime = [...kinds, ["first_touches", "--first-touch", "first touches"]];

function showFigures() {
  const processes = data.processes.length;
  byId("origin").textContent =
    `Farheap, ${processes === 1 ? "process " + data.processes[0].pid : processes + " processes"}`;
  const figures = [
    [counted(data.misses), "misses recorded"],
    [`${counted(data.explaining)} of ${counted(data.all_lines)}`,
     `lines of code explain ${percent(data.explained_share)}`],
  ];
  if (data.first_touches > 0) figures.push([counted(data.first_touches), "first touches beside them: nothing to fetch"]);
  const all = data.misses + data.first_touches + data.hinted_misses;
  if (data.hint_sites.length > 0 && all > 0) {
    figures.push([percent(data.hinted_misses / all), "of all misses, first touches among them, had a hint before them"]);
    figures.push([counted(data.misses_near_hints), "misses all the same beside a hint"]);
  }
  const writes = data.lines.reduce((sum, line) => sum + line.writes + line.protections, 0);
  figures.push([percent(writes / (data.misses || 1)), "of the misses are writes"]);
  byId("figures").replaceChildren(...figures.map(([value, name]) =>
    element("div", { className: "figure" }, element("b", {}, value), element("span", {}, name))));
}

function showNotes() {
  const notes = [];
  for (const one of data.processes) {
    if (one.cut_short) notes.push(`The trace of process ${one.pid} is cut short; its beginning is here.`);
    if (!one.ended) notes.push(`Process ${one.pid} did not end in order, or was still running.`);
    if (one.lost_records > 0) notes.push(`Process ${one.pid} lost ${counted(one.lost_records)} records for want of space.`);
    if (one.sampled_one_in > 1) notes.push(`Process ${one.pid} recorded 1 of ${one.sampled_one_in} misses.`);
  }
  byId("notes").hidden = notes.length === 0;
  byId("notes").replaceChildren(...notes.map((note) => element("p", {}, note)));
}

// A table whose columns are [title, value to sort by, cell, class]; shows `rows()`.
function sortableTable(table, columns, rows, onRow) {
  let by = -1;  // the column; before a click the order is that of the rows
  let up = false;
  function show() {
    const sorted = [...rows()];
    if (by >= 0) {
      const value = columns[by][1];
      const order = (a, b) => (typeof a === "string" ? a.localeCompare(b) : a - b);
      sorted.sort((a, b) => (up ? 1 : -1) * order(value(a), value(b)));
    }
    heads.forEach((head, index) => {
      if (index === by) head.setAttribute("aria-sort", up ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    });
    table.tBodies[0].replaceChildren(...sorted.map((row) => {
      const made = element("tr", {}, ...columns.map(([, , cell, className]) =>
        element("td", { className: className || "" }, ...[cell(row)].flat())));
      if (onRow) {
        made.tabIndex = 0;
        made.addEventListener("click", () => { if (String(getSelection()) === "") onRow(row); });
        made.addEventListener("keydown", (event) => { if (event.key === "Enter") onRow(row); });
      }
      return made;
    }));
  }
  const heads = columns.map(([title, value, , className], index) => {
    const head = element("th", { className: className === "number" ? "number" : "", tabIndex: 0, scope: "col" }, title);
    const sort = () => {
      // Numbers are wanted greatest first, text from A on.
      up = by === index ? !up : typeof value(rows()[0] || {}) === "string";
      by = index;
      show();
    };
    head.addEventListener("click", sort);
    head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(); });
    return head;
  });
  table.tHead.replaceChildren(element("tr", {}, ...heads));
  show();
  return show;
}

// Of paths with a line behind them: the last folder and the file, and the file alone.
const fileName = (place) => place.replace(/^.*\/(?=[^/]*:\d)/, "");
const shortPlace = (place) => place.replace(/^.*\/(?=[^/]*\/[^/]*:\d)/, "");

function kindBar(line) {
  const bar = element("div", { className: "bar" });
  bar.title = kinds.map(([key, , name]) => `${counted(line[key])} ${name}`).join(", ");
  for (const [key, colour] of kinds) {
    const part = element("i");
    part.style.width = 100 * line[key] / line.misses + "%";
    part.style.background = `var(${colour})`;
    bar.append(part);
  }
  return bar;
}

function placeCell(line) {
  const cell = [element("div", { className: "place", title: line.place }, shortPlace(line.place)),
                element("div", { className: "quiet clamp", title: line.function }, line.function)];
  if (line.container) {
    cell.push(element("div", { className: "quiet clamp", title: line.container }, "Through: " + line.container));
  }
  if (line.python && line.python !== line.place) {
    cell.push(element("div", { className: "quiet", title: line.python }, "Python: " + shortPlace(line.python)));
  }
  return cell;
}

function patternCell(line) {
  const details = [];
  if (line.fit > 0) details.push(percent(line.fit) + " fit");
  if (line.typical_run_pages > 0) details.push(`runs of ${counted(line.typical_run_pages)} pages`);
  details.push(line.threads === 1 ? "1 thread" : line.threads + " threads");
  return [line.pattern, element("div", { className: "quiet" }, details.join(", "))];
}

function memoryCell(line) {
  if (line.allocations.length === 0) return element("span", { className: "quiet" }, "not recorded");
  return line.allocations.slice(0, 2).map((site) => {
    const [, place, name] = site.place.match(/^(.*?:\d+) (.*)$/s) || [null, site.place, ""];
    return element("div", { title: site.place }, element("span", { className: "place" }, fileName(place)),
                   element("div", { className: "quiet clamp" }, `${name} ${percent(site.misses / line.misses)}`.trim()));
  });
}

function hintCell(line) {
  if (!line.hint) return element("span", { className: "quiet" }, "none: far containers do not take hints");
  const cell = [element("code", {}, line.hint)];
  if (line.has_hint) cell.push(element("div", {}, element("span", { className: "tag bad" }, "a hint stands close by: too late?")));
  return cell;
}

function showLines() {
  const everything = byId("all-lines");
  byId("all-lines-text").textContent = `all ${counted(data.all_lines)} lines`;
  const columns = [
    ["Line", (line) => line.place, placeCell, "wide"],
    ["Misses", (line) => line.misses, (line) => [counted(line.misses), kindBar(line)], "number"],
    ["Share", (line) => line.share, (line) => percent(line.share), "number"],
    ["Sum", (line) => line.cumulative_share, (line) => percent(line.cumulative_share), "number"],
    ["Pattern", (line) => line.pattern, patternCell],
    ["Missing memory from", (line) => (line.allocations[0] || { place: "" }).place, memoryCell, "wide"],
    ["Hint to write", (line) => line.hint, hintCell, "code"],
  ];
  const rows = () => (everything.checked ? data.lines : data.lines.slice(0, data.explaining));
  const show = sortableTable(byId("lines"), columns, rows, (line) => {
    byId("search").value = line.file ? line.place : line.function;
    flame.search(byId("search").value);
    byId("flame-box").scrollIntoView({ behavior: "smooth", block: "center" });
  });
  everything.addEventListener("change", show);
}

function showHints() {
  byId("hints-card").hidden = data.hint_sites.length === 0;
  const tag = (site) => element("span", { className: site.never_helps ? "tag bad" : "tag good" },
                                site.never_helps ? "never helps: remove it, or move it earlier" : "helps");
  sortableTable(byId("hints"), [
    ["Line", (site) => `${site.file}:${site.line}`, (site) => element("span", { className: "place" }, `${site.file}:${site.line}`)],
    ["Calls", (site) => site.calls, (site) => counted(site.calls), "number"],
    ["Found something to do", (site) => site.misses, (site) => counted(site.misses), "number"],
    ["", (site) => String(site.never_helps), tag],
  ], () => data.hint_sites);
}

function showMissing() {
  byId("missing-card").hidden = data.missing_symbols.length === 0;
  byId("missing").replaceChildren(...data.missing_symbols.map((one) =>
    element("li", {}, element("span", { className: "place" }, one.module), element("div", { className: "quiet" }, one.advice))));
}

// The next of 1, 2, 5, 10, 20, ...
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value) || 1;
}

function chartAxes(chart, size, top, span) {
  for (let i = 0; i <= 5; ++i) {
    const y = size.top + (size.height * i) / 5;
    chart.append(drawing("line", { class: "grid", x1: size.left, x2: size.left + size.width, y1: y, y2: y }));
    chart.append(drawing("text", { x: size.left - 8, y: y + 4, "text-anchor": "end" }, counted(top * (1 - i / 5))));
  }
  for (let i = 0; i <= 5; ++i) {
    const anchor = i === 0 ? "start" : i === 5 ? "end" : "middle";
    chart.append(drawing("text", { x: size.left + (size.width * i) / 5, y: size.top + size.height + 18, "text-anchor": anchor },
                         i === 0 ? "0" : duration((span * i) / 5)));
  }
}

function showChart() {
  const chart = byId("chart");
  const series = kindsOverTime.map(([key, colour, name]) => ({ counts: data.timeline[key], colour, name }));
  const buckets = series[0].counts.length;
  const size = { left: 58, top: 10, height: 170, width: Math.max(200, (chart.clientWidth || 1000) - 66) };
  chart.replaceChildren();
  chart.setAttribute("height", 210);
  if (buckets === 0) return;
  const totals = series[0].counts.map((_, i) => series.reduce((sum, one) => sum + one.counts[i], 0));
  const top = Math.max(5, roundUp(Math.max(...totals)));
  chartAxes(chart, size, top, data.timeline.bucket_ns * buckets);
  const step = size.width / buckets;
  totals.forEach((total, i) => {
    const column = drawing("g", { class: "column" });
    let y = size.top + size.height;
    for (const { counts, colour } of series) {
      const height = (counts[i] / top) * size.height;
      y -= height;
      if (height === 0) continue;
      column.append(drawing("rect", { class: "point", x: size.left + i * step, y, height, style: `fill: var(${colour})`,
                                      width: Math.max(0.5, step - (step > 3 ? 1 : 0)) }));
    }
    // The whole height answers to the pointer.
    column.append(drawing("rect", { x: size.left + i * step, y: size.top, width: step, height: size.height, fill: "transparent" }));
    column.addEventListener("mousemove", (event) => showTip(event, [
      `${counted(total)} misses of all kinds at ${duration(i * data.timeline.bucket_ns)}`,
      ...series.filter(({ counts }) => counts[i] > 0).map(({ counts, name }) => `${counted(counts[i])} ${name}`)]));
    column.addEventListener("mouseleave", hideTip);
    chart.append(column);
  });
}

function showLegend() {
  byId("legend").replaceChildren(...kindsOverTime.map(([, colour, name]) => {
    const sample = element("i");
    sample.style.background = `var(${colour})`;
    return element("span", {}, sample, name);
  }));
}

function setTheme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  byId("theme").textContent = dark ? "Light" : "Dark";
}

setTheme(matchMedia("(prefers-color-scheme: dark)").matches);
byId("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme !== "dark"));
addEventListener("resize", showChart);
showFigures();
showNotes();
showLines();
showLegend();
showChart();
showHints();
showMissing();
flame.draw();
