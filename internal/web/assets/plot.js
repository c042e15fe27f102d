// Plots over time, drawn by uPlot. A caption shows the values at the cursor. Without a cursor it shows
// the latest ones if the plot is live, else the highest.
import { duration } from "/assets/units.js";

const uPlot = globalThis.uPlot;
const plots = new Set();

export function colour(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

// repaint redraws all plots in the colours of the present theme.
export function repaint() { for (const p of plots) p.rebuild(); }

// clocks formats times of day, with seconds if they are close together.
function clocks(all) {
  const close = all.length < 2 || all[1] - all[0] < 60;
  return all.map(s => new Date(s * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: close ? "2-digit" : undefined, hour12: false }));
}

const resized = new ResizeObserver(entries => { for (const e of entries) e.target.plot.fit(); });

export class Plot {
  // series: name, line and fill (names of colours), dash, dots, steady (the last known value holds).
  // format turns a value into text.
  // If time is set, x is in seconds since 1970, else in seconds since the start.
  constructor(title, format, series, options = {}) {
    Object.assign(this, { title, format, series, options, data: [[], ...series.map(() => [])] });
    this.canvas = document.createElement("div");
    this.canvas.className = "canvas";
    this.canvas.plot = this;
    this.values = series.map(() => document.createElement("b"));
    const caption = document.createElement("figcaption");
    const name = document.createElement("span"), keys = document.createElement("span");
    name.className = "title";
    name.textContent = title;
    keys.className = "keys";
    caption.append(name, keys);
    this.swatches = series.map((s, i) => {
      const key = document.createElement("span"), swatch = document.createElement("span");
      key.className = "key";
      swatch.className = "swatch";
      key.append(swatch, s.name + " ", this.values[i]);
      keys.append(key);
      return swatch;
    });
    this.figure = document.createElement("figure");
    this.figure.className = "plot";
    this.figure.append(caption, this.canvas);
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", title);
    plots.add(this);
    resized.observe(this.canvas);
  }

  fit() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!width || !height) return;
    if (!this.u) this.rebuild();
    else if (this.u.width !== width || this.u.height !== height) this.u.setSize({ width, height });
  }

  rebuild() {
    if (this.u) this.u.destroy();
    this.u = null;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!width || !height) return;
    const ink = colour("--quiet"), grid = { stroke: colour("--edge"), width: 1 }, ticks = { show: false };
    const font = "12px " + getComputedStyle(document.body).fontFamily;
    const axis = { stroke: ink, font, ticks };
    this.series.forEach((s, i) => { this.swatches[i].style.background = colour(s.line); });
    this.u = new uPlot({
      width, height, legend: { show: false }, padding: [8, 22, 0, 0],
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
      scales: { x: { time: Boolean(this.options.time), range: (_, min, max) => this.options.time && min !== null ? [Math.min(min, max - 30), max] : [min, max] }, y: { range: (_, __, max) => [0, max > 0 ? max * 1.12 : this.options.least || 1] } },
      axes: [
        { ...axis, grid: { show: false }, size: 26, ...(this.options.time ? { values: (_, all) => clocks(all), space: 80 } : { values: (_, all) => all.map(s => s ? duration(s) : "0"), space: 60 }) },
        { ...axis, grid, size: 74, space: 34, values: (_, all) => all.map(v => v === null ? "" : this.format(v)) },
      ],
      series: [{}, ...this.series.map(s => ({
        stroke: colour(s.line), width: s.dots ? 0 : 1.75, dash: s.dash, fill: s.fill ? colour(s.fill) : undefined, spanGaps: !s.dots,
        points: s.dots ? { show: true, size: 7, fill: colour(s.line), stroke: colour(s.line) } : { show: false },
      }))],
      hooks: { setCursor: [() => this.describe()] },
    }, this.data, this.canvas);
    this.describe();
  }

  draw(data) {
    this.data = data;
    if (!this.u) this.fit();
    else this.u.setData(data);
    this.describe();
  }

  // describe writes the values into the caption, and a description of the plot for screen readers.
  describe() {
    const at = this.u && this.u.cursor.idx !== null && this.u.cursor.left >= 0 ? this.u.cursor.idx : null;
    this.series.forEach((s, i) => {
      const column = this.data[i + 1], v = at === null ? this.present(s, column) : column[at];
      const text = s.dots && at === null ? "" : v === null || v === undefined ? "–" : this.format(v);
      if (this.values[i].textContent !== text) this.values[i].textContent = text;
    });
    const label = this.title + " over time. " + this.series.map((s, i) => {
      const column = this.data[i + 1], v = this.present(s, column), highest = this.highest(column);
      if (highest === null) return s.name + ": none";
      return s.name + ": " + (v === null ? "unknown" : this.format(v)) + (v === highest ? "" : ", highest " + this.format(highest));
    }).join("; ");
    if (this.canvas.getAttribute("aria-label") !== label) this.canvas.setAttribute("aria-label", label);
  }

  // present is the value of a series that the caption shows, null if it is unknown.
  present(s, column) {
    if (s.steady) return column.findLast(v => v !== null) ?? null;
    return this.options.live ? column[column.length - 1] ?? null : this.highest(column);
  }

  highest(column) { return column.reduce((a, b) => a === null || b > a ? b : a, null); }

  destroy() {
    plots.delete(this);
    resized.unobserve(this.canvas);
    if (this.u) this.u.destroy();
    this.u = null;
  }
}
