// The dashboard of a fleet. It asks for the fleet's state each two seconds and shows it.
import { $, call, el, put, state, themeButton } from "/assets/dom.js";
import { Plot, repaint } from "/assets/plot.js";
import { kept, leave, take } from "/assets/token.js";
import { ago, bytes, clock, duration, rate } from "/assets/units.js";

const total = new Plot("Written by all workers", rate, [{ name: "now", line: "--out", fill: "--out-soft" }], { live: true, time: true, least: 1e6 });
$("p-total").replaceWith(total.figure);
total.figure.classList.add("tall");

const kinds = { done: "good", failed: "bad", paused: "warn" };
const fewest = 12;
let all = false, latest = null;

// fill replaces the rows of a table, only if they change.
function fill(id, items, row, columns, none) {
  const body = $(id), now = JSON.stringify(items) + Math.floor(Date.now() / 60e3);
  if (body.shown === now) return;
  body.shown = now;
  body.replaceChildren(...items.map(row));
  if (!items.length) body.append(el("tr", {}, el("td", { colspan: columns, class: "quiet" }, none)));
}

function jobRow(j) {
  const left = j.shards ? j.done + " of " + j.shards : "–";
  return el("tr", {},
    el("td", { class: "name" }, el("code", {}, j.id), el("div", { class: "quiet" }, j.source + " → " + j.url), j.reason ? el("div", { class: "bad" }, j.reason) : null),
    el("td", {}, el("span", { class: "tag " + (kinds[j.state] || "") }, j.state), !j.over && j.idle > 60 ? el("div", { class: "warn" }, "no worker for " + duration(j.idle)) : null),
    el("td", { class: "number" }, left, j.dead ? el("div", { class: "bad" }, j.dead + " given up") : null, j.retrying ? el("div", { class: "quiet" }, j.retrying + " tried again") : null),
    el("td", { class: "number wide" }, String(j.running)), el("td", { class: "number wide" }, j.files.toLocaleString("en")),
    el("td", { class: "number wide" }, bytes(j.bytes)), el("td", { class: "number wide" }, bytes(j.written)), el("td", { class: "wide" }, clock(j.submitted)));
}

function workerRow(w) {
  return el("tr", {}, el("td", { class: "name" }, w.name), el("td", {}, w.task ? el("code", {}, w.task) : el("span", { class: "quiet" }, "none")),
    el("td", { class: "number" }, w.task ? duration(Math.max(0, (latest.at - w.since) / 1000)) : "–"), el("td", { class: "number" }, w.task ? bytes(w.written) : "–"),
    el("td", { class: "wide" }, ago(w.began)));
}

function deadRow(d) {
  return el("tr", {}, el("td", { class: "name" }, el("code", {}, d.task)), el("td", { class: "bad" }, d.reason), el("td", { class: "wide name" }, d.worker),
    el("td", { class: "number wide" }, String(d.attempt)), el("td", {}, ago(d.at)));
}

function show(f) {
  latest = f;
  const open = f.jobs.filter(j => !j.over), sum = key => open.reduce((n, j) => n + j[key], 0), wait = Math.max(0, ...open.map(j => j.idle));
  const busy = f.workers.filter(w => w.task).length;
  document.title = (open.length ? "(" + open.length + ") " : "") + "fxfer fleet " + f.host;
  state(f.ready ? "serving" : "the queue is away", f.ready ? "good" : "bad");
  put($("host"), f.host);
  put($("queue"), f.queue);
  put($("t-rate"), rate(f.rate));
  put($("t-jobs"), String(open.length));
  put($("t-left"), String(sum("shards") - sum("done") - sum("dead")));
  put($("t-dead"), String(sum("dead")));
  put($("t-workers"), busy + " of " + f.workers.length + " busy");
  put($("t-age"), wait > 0 ? duration(wait) : "none");
  const jobs = all ? f.jobs : f.jobs.filter((j, i) => !j.over || i < fewest);
  fill("job-rows", jobs, jobRow, 8, "No jobs yet: fxfer fleet submit SRC URL adds one.");
  $("more").hidden = jobs.length === f.jobs.length;
  put($("more"), "Show all " + f.jobs.length);
  fill("worker-rows", f.workers, workerRow, 5, "No worker is there: fxfer fleet worker on a host starts one.");
  $("dead").hidden = $("to-dead").hidden = !f.dead.length;
  fill("dead-rows", f.dead, deadRow, 5, "");
}

$("more").addEventListener("click", () => { all = true; show(latest); });
themeButton(repaint);

async function begin() {
  take();
  if (!kept()) return leave();
  for (;;) {
    try {
      const totals = await call("GET", "/api/totals");
      show(await call("GET", "/api/fleet"));
      total.draw([totals.map(t => t.at / 1000), totals.map(t => t.out)]);
    } catch {
      state("no connection, trying again", "bad");
    }
    await new Promise(done => setTimeout(done, 2000));
  }
}
begin();
