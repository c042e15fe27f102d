// The dashboard. It gets the server's state once a second and shows it.
import { $, call, el, put, state, themeButton } from "/assets/dom.js";
import { Plot, colour, repaint } from "/assets/plot.js";
import { kept, leave, request, take } from "/assets/token.js";
import { ago, bytes, clock, duration, millis, percent, rate } from "/assets/units.js";

const kinds = {
  "line rate": "line", "receiver window": "windows", "sender buffer": "windows", "bufferbloat": "queue", "relay": "line", "own queue": "queue", "random loss": "loss",
  "shared with other traffic": "queue", "own priority": "asked", "narrow line": "line", "policed": "line", "SACK off": "loss",
  "reordering": "loss", "outage": "loss", "MTU black hole": "loss", "slow start": "start", "initial window": "start", "source disk": "disk", "target disk": "disk",
  "sync": "disk", "sender CPU": "cpu", "receiver CPU": "cpu", "rate limit": "asked", "source is silent": "asked", "request stalls": "asked",
};
const shade = limiter => "--" + (kinds[limiter] || "nothing");
const limiterName = l => l.name + (l.host ? " on " + l.host : "");

let clients = new Map(); // by key
const ownName = c => c && c.name && !c.name.startsWith("invited ") ? c.name : "";
const clientName = key => ownName(clients.get(key)) || (key.startsWith("ed25519:") ? key.slice(8, 18) + "…" : key);

// what names a transfer: its one file, or the number of files and their path.
function what(t) {
  const below = t.paths.filter(p => p && p !== ".").map(p => p.replace(/\/$/, "")).join(", "), place = t.share + (below ? "/" + below : "");
  if (t.files === 1 && t.first) return place.endsWith("/" + t.first) ? place : t.receive || below.endsWith("/") ? place + "/" + t.first : place;
  return place + (t.files > 1 ? ": " + t.files.toLocaleString("en") + " files" : "");
}

let said;
function say(text) {
  const e = $("news");
  e.textContent = text;
  e.classList.add("on");
  clearTimeout(said);
  said = setTimeout(() => e.classList.remove("on"), 5000);
}

// ask asks the user to confirm an action.
function ask(title, text, deed) {
  const d = $("ask");
  put($("ask-title"), title);
  put($("ask-text"), text);
  put($("ask-yes"), deed);
  d.returnValue = "";
  d.showModal();
  return new Promise(done => d.addEventListener("close", () => done(d.returnValue === "yes"), { once: true }));
}

// A Timeline shows a transfer's goodput, round trips and window over time, and what held it back. If
// it is live, the captions have the present values, else the highest.
class Timeline {
  constructor(receive, live) {
    const now = live ? "now" : "highest", line = receive ? "--in" : "--out";
    this.points = [];
    this.goodput = new Plot("Goodput", rate, [{ name: now, line, fill: line + "-soft" }], { live, least: 1e6 });
    this.rtt = new Plot("Round trip", millis, [{ name: now, line: "--queue" }, { name: "least", line: "--quiet", dash: [4, 4], steady: true }], { live, least: 1e-3 });
    this.flight = new Plot("In flight", bytes, [{ name: now, line, fill: line + "-soft" }, { name: "window", line: "--windows" }, { name: "BDP", line: "--quiet", dash: [4, 4], steady: true }], { live, least: 1e6 });
    this.strip = el("div", { class: "strip", role: "img", "aria-label": "" });
    this.legend = el("ul", { class: "legend" });
    this.element = el("div", {}, el("div", { class: "plots" }, this.goodput.figure, this.rtt.figure, this.flight.figure), this.strip, this.legend);
  }

  set(points) { this.points = points; }

  // add appends a point. It thins out the points before if there are too many.
  add(p) {
    this.points.push(p);
    if (this.points.length > 900) this.points = this.points.filter((_, i) => i % 2 === 1 || i > 600);
  }

  draw() {
    const x = [], goodput = [], rtt = [], least = [], flight = [], window = [], bdp = [];
    let peak = 0, min = 0;
    for (const p of this.points) {
      peak = Math.max(peak, p.goodput);
      if (p.minRTT > 0 && (min === 0 || p.minRTT < min)) min = p.minRTT;
      x.push(p.at); goodput.push(p.goodput); rtt.push(p.rtt || null); least.push(min || null);
      flight.push(p.inFlight || null); window.push(p.window || null); bdp.push(min ? peak / 8 * min : null);
    }
    this.goodput.draw([x, goodput]);
    this.rtt.draw([x, rtt, least]);
    this.flight.draw([x, flight, window, bdp]);
    this.drawStrip();
  }

  drawStrip() {
    const held = new Map(), parts = [];
    let before = 0;
    for (const p of this.points) {
      const span = Math.max(0, p.at - before);
      before = p.at;
      if (!p.limiter) continue;
      held.set(p.limiter, (held.get(p.limiter) || 0) + span);
      const last = parts[parts.length - 1];
      if (last && last.limiter === p.limiter) last.span += span;
      else parts.push({ limiter: p.limiter, span });
    }
    this.strip.replaceChildren(...parts.map(p => {
      const e = el("span", { title: p.limiter + ", " + duration(p.span) });
      e.style.flexGrow = p.span;
      e.style.background = "var(" + shade(p.limiter) + ")";
      return e;
    }));
    const all = [...held.values()].reduce((a, b) => a + b, 0) || 1;
    const most = [...held.entries()].sort((a, b) => b[1] - a[1]);
    this.strip.setAttribute("aria-label", "What held it back: " + (most.map(([l, s]) => l + " " + percent(s / all)).join(", ") || "nothing known yet"));
    this.legend.replaceChildren(...most.map(([l, s]) => el("li", {}, dot(l), l + " " + percent(s / all))));
  }

  destroy() { for (const p of [this.goodput, this.rtt, this.flight]) p.destroy(); }
}

function dot(limiter) {
  const e = el("span", { class: "dot" });
  e.style.background = "var(" + shade(limiter) + ")";
  return e;
}

// why says what holds a transfer back, with the evidence and the remedy.
function why(l, when) {
  if (!l) return el("p", { class: "why quiet" }, "What holds it back is not known yet.");
  const e = el("div", { class: "why" }, el("p", {}, dot(l.name), el("strong", {}, limiterName(l)), " ", el("span", { class: "quiet" }, percent(l.share) + " of the " + when)),
    el("ul", {}, ...l.evidence.slice(0, 3).map(t => el("li", {}, t))));
  e.style.borderLeftColor = "var(" + shade(l.name) + ")";
  if (l.hint) {
    const p = el("p", { class: "hint" }, el("span", { class: "quiet" }, "Remedy: "), l.command ? el("code", {}, l.hint) : l.hint);
    if (l.command && navigator.clipboard) {
      p.append(el("button", { type: "button", class: "small plain", onclick: () => navigator.clipboard.writeText(l.hint).then(() => say("Copied"), () => say("The browser did not let it be copied")) }, "Copy"));
    }
    e.append(p);
  }
  return e;
}

// lostTo says what the segments were lost to that were sent again.
function lostTo(s) {
  const causes = [["own queue", s.lostOwn], ["others' queue", s.lostOthers], ["line", s.lostLine], ["nothing, sent in vain", s.spurious]];
  return causes.filter(([, n]) => n).map(([cause, n]) => cause + " " + n).join(", ");
}

function facts(t) {
  const n = t.network, all = [
    ["Least round trip", n.minRTT && millis(n.minRTT)], ["BDP", n.bdp && bytes(n.bdp)], ["Window", n.window && bytes(n.window)],
    ["Receiver window", n.peerWindow && bytes(n.peerWindow) + " a stream"], ["Send buffer", n.sendBuffer && bytes(n.sendBuffer)], ["Receive buffer", n.recvBuffer && bytes(n.recvBuffer)],
    ["Congestion control", n.congestion], ["Path MTU", n.pmtu && n.pmtu + " B"], ["Sent again", n.segments && n.retransmits + " segments, " + percent(n.retransmits / n.segments)],
    ["Priority", t.sharing.priority], ["Shared for", t.sharing.shared && duration(t.sharing.shared)], ["Yielded for", t.sharing.yielded && duration(t.sharing.yielded)],
    ["Delay added", t.sharing.queueMost && millis(t.sharing.queue) + ", at most " + millis(t.sharing.queueMost)], ["Lost to", lostTo(t.sharing)],
    ["Streams", t.streams], ["From", t.peer], ["Not durable for", t.atRisk && duration(t.atRisk)],
  ];
  return el("dl", { class: "facts" }, ...all.filter(([, v]) => v).map(([k, v]) => el("div", {}, el("dt", {}, k), el("dd", {}, String(v)))));
}

// A Card shows a running transfer.
class Card {
  constructor(t, open) {
    this.id = t.id;
    this.title = el("h3");
    this.who = el("p", { class: "who" });
    this.fill = el("span");
    this.bar = el("div", { class: "bar", role: "progressbar", "aria-valuemin": 0, "aria-valuemax": 100, "aria-label": "Progress of " + what(t) }, this.fill);
    this.values = {};
    const figure = (key, label, main) => el("div", { class: main ? "main" : "" }, el("dt", {}, label), this.values[key] = el("dd", {}, "–"));
    const figures = el("dl", { class: "figures" }, figure("goodput", "goodput", true), figure("done", "done"), figure("left", "left"), figure("files", "files"),
      figure("rtt", "round trip"), figure("streams", "streams"));
    this.why = el("div");
    this.facts = el("div");
    this.files = el("div", { class: "files" });
    this.line = new Timeline(t.receive, true);
    this.details = el("details", { open }, el("summary", {}, "Over time, and figures"), this.line.element, this.facts, this.files);
    this.details.addEventListener("toggle", () => { if (this.details.open) this.line.draw(); });
    const cancel = el("button", { type: "button", class: "small danger", onclick: () => this.cancel() }, "Cancel", el("span", { class: "unseen" }, " " + what(t)));
    this.priority = el("select", { "aria-label": "Priority of " + what(t), onchange: () => this.prioritize() },
      ...[["auto", "Priority: automatic"], ["low", "Priority: low"], ["normal", "Priority: normal"], ["high", "Priority: high"]].map(([value, text]) => el("option", { value }, text)));
    this.element = el("article", { class: "card run" + (t.receive ? "" : " sends"), "data-id": t.id },
      el("div", { class: "headline" }, el("div", { class: "about" }, this.title, this.who), this.priority, cancel), this.bar, figures, this.why, this.details);
    this.shown = "";
    call("GET", "/api/transfers/" + encodeURIComponent(t.id)).then(x => { this.line.points = (x.timeline || []).concat(this.line.points.filter(p => p.at > x.seconds)); this.update(x); }, () => {});
    this.update(t);
  }

  update(t) {
    this.t = t;
    put(this.title, (t.receive ? "Receiving " : "Sending ") + what(t));
    put(this.who, (t.receive ? "from " : "to ") + clientName(t.client) + ", " + t.peer.replace(/:\d+$/, ""));
    const known = t.bytes > 0 && !t.walking, part = known ? Math.min(1, t.arrived / t.bytes) : 0;
    this.fill.style.width = part * 100 + "%";
    if (known) this.bar.setAttribute("aria-valuenow", Math.floor(part * 100)); else this.bar.removeAttribute("aria-valuenow");
    const v = this.values;
    put(v.goodput, rate(t.goodput));
    put(v.done, known ? bytes(t.arrived) + " of " + bytes(t.bytes) + ", " + percent(part) : bytes(t.arrived) + (t.walking ? ", still listing" : ""));
    put(v.left, known && t.goodput > 0 ? duration((t.bytes - t.arrived) * 8 / t.goodput) : "–");
    put(v.files, t.done + " of " + t.files + (t.failed ? ", " + t.failed + " failed" : ""));
    put(v.rtt, t.network.rtt ? millis(t.network.rtt) : "–");
    put(v.streams, String(t.streams));
    const n = t.network;
    this.line.add({ at: t.seconds, goodput: t.goodput, rtt: n.rtt, minRTT: n.minRTT, inFlight: n.inFlight, window: n.window, limiter: t.limit ? t.limit.name : "" });
    const shown = JSON.stringify(t.limit || null);
    this.bar.setAttribute("aria-label", "Progress of " + what(t));
    if (shown !== this.shown) {
      this.shown = shown;
      if (!this.why.contains(document.activeElement) || !t.limit) this.why.replaceChildren(why(t.limit, "last seconds"));
    }
    if (this.details.open) {
      this.line.draw();
      this.facts.replaceChildren(facts(t));
      this.files.replaceChildren(...t.active.slice(0, 6).map(f => {
        const fill = el("span"), whole = f.bytes > 0;
        fill.style.width = (whole ? Math.min(1, f.done / f.bytes) * 100 : 0) + "%";
        return el("div", {}, el("div", { class: "name" }, el("span", {}, f.path), el("span", {}, whole ? bytes(f.done) + " of " + bytes(f.bytes) : bytes(f.done))), el("div", { class: "bar thin" }, fill));
      }));
    }
  }

  async prioritize() {
    const to = this.priority.value;
    try {
      await call("POST", "/api/transfers/" + encodeURIComponent(this.id) + "/priority/" + to);
      say(to === "auto" ? "The client chooses the priority again" : "The priority is " + to);
    } catch (e) {
      say(e.message);
    }
  }

  async cancel() {
    const yes = await ask("Cancel this transfer?", "The client is told and does not try again by itself. What has arrived stays: the same command goes on from there.", "Cancel the transfer");
    if (!yes) return;
    try {
      await call("POST", "/api/transfers/" + encodeURIComponent(this.id) + "/cancel");
      say("The transfer is cancelled");
    } catch (e) {
      say(e.message);
    }
  }

  destroy() {
    this.line.destroy();
    this.element.remove();
  }
}

const cards = new Map(); // by id, in the order of the page
const fewestRunning = 12;
let first = true, allRunning = false;

function showRunning(v) {
  const there = new Set(v.transfers.map(t => t.id));
  for (const [id, card] of cards) {
    if (!there.has(id)) {
      if (card.element.contains(document.activeElement)) $("main").focus();
      card.destroy();
      cards.delete(id);
      say("Ended: " + what(card.t));
    }
  }
  for (const t of v.transfers) {
    const card = cards.get(t.id);
    if (card) {
      card.update(t);
      continue;
    }
    if (!allRunning && cards.size >= fewestRunning) continue;
    const c = new Card(t, cards.size < 3);
    cards.set(t.id, c);
    $("running").append(c.element);
    if (!first) say((t.receive ? "Receiving " : "Sending ") + what(t));
  }
  put($("n-running"), String(v.transfers.length));
  $("more-running").hidden = cards.size === v.transfers.length;
  put($("more-running"), "Show all " + v.transfers.length);
  $("idle").hidden = v.transfers.length > 0;
  if (!$("idle").hidden) put($("idle"), "Nothing runs. fxfer send FILE fxfer://" + (v.host || location.hostname) + "/" + (v.shares.length ? v.shares[0].name : "SHARE") + " on a client starts a transfer.");
  first = false;
}

let latest = null;
$("more-running").addEventListener("click", () => { allRunning = true; if (latest) showRunning(latest); });

const total = new Plot("All transfers", rate, [{ name: "receiving", line: "--in", fill: "--in-soft" }, { name: "sending", line: "--out", fill: "--out-soft" }], { live: true, time: true, least: 1e6 });
$("p-total").replaceWith(total.figure);
total.figure.classList.add("tall");
let totals = [];

function showTotals(t) {
  const last = totals[totals.length - 1];
  if (t && (!last || t.at > last.at)) totals.push(t);
  while (totals.length > 1 && totals[0].at < totals[totals.length - 1].at - 15 * 60e3) totals.shift();
  total.draw([totals.map(t => t.at / 1000), totals.map(t => t.in), totals.map(t => t.out)]);
}

function showOverview(v) {
  put($("host"), v.host);
  put($("key"), v.key);
  document.title = (v.transfers.length ? "(" + v.transfers.length + ") " : "") + "fxfer " + v.host;
  state(v.ready ? "serving" : "ending", v.ready ? "good" : "warn");
  put($("uptime"), "up " + duration((v.at - v.started) / 1000) + " · " + v.addr);
  put($("t-in"), rate(v.total.in));
  put($("t-out"), rate(v.total.out));
  put($("t-runs"), String(v.transfers.length));
  put($("t-sessions"), v.sessions + " of " + v.maxSessions);
  const free = v.shares.map(s => s.free).filter(f => f >= 0);
  put($("t-free"), free.length ? bytes(Math.min(...free)) : "–");
  put($("t-refused"), String(v.refused));
}

let sharesShown = "";
function showShares(v) {
  const now = JSON.stringify(v.shares);
  if (now === sharesShown) return;
  sharesShown = now;
  $("share-rows").replaceChildren(...v.shares.map(s => el("tr", {},
    el("td", { class: "name" }, s.name), el("td", { class: "wide name" }, el("code", {}, s.dir)), el("td", {}, rights(s.rights)),
    el("td", { class: "number" }, s.free >= 0 ? bytes(s.free) : "–"), el("td", { class: "number wide" }, bytes(s.in)), el("td", { class: "number wide" }, bytes(s.out)),
    el("td", {}, s.last ? ago(s.last) : "–"))));
}

const rightNames = { rw: "read, write", ro: "read", wo: "write" };
const rights = r => rightNames[r] || r;

// Transfers that ended.

const outcomes = { done: ["done", "good"], partial: ["some failed", "warn"], cancelled: ["cancelled", "warn"], drained: ["server ended", "warn"], lost: ["connection lost", "bad"],
  disk: ["disk", "bad"], failed: ["failed", "bad"] };
const history = new Plot("Goodput of the transfers that ended", rate, [{ name: "received", line: "--in", dots: true }, { name: "sent", line: "--out", dots: true }], { time: true, least: 1e6 });
$("p-history").replaceWith(history.figure);
let past = [], endedShown = -1, all = false;
const fewest = 12;

async function readHistory(v) {
  if (v.ended === endedShown) return;
  endedShown = v.ended;
  try {
    past = await call("GET", "/api/history");
  } catch {
    endedShown = -1;
    return;
  }
  showHistory();
}

function showHistory() {
  const told = past.filter(t => t.written > 0).reverse();
  history.figure.hidden = told.length < 2;
  history.draw([told.map(t => t.ended / 1000), told.map(t => t.receive ? t.goodput : null), told.map(t => t.receive ? null : t.goodput)]);
  const rows = all ? past : past.slice(0, fewest);
  $("past").replaceChildren(...rows.map(t => {
    const [text, kind] = outcomes[t.outcome] || [t.outcome, ""], l = (t.limits || [])[0];
    return el("tr", {}, el("td", {}, clock(t.ended)),
      el("td", { class: "what" }, el("button", { type: "button", class: "link", onclick: () => showDetail(t) }, (t.receive ? "Received " : "Sent ") + what(t))),
      el("td", { class: "wide name" }, clientName(t.client)), el("td", { class: "number" }, bytes(t.written)), el("td", { class: "number wide" }, duration(t.seconds)),
      el("td", { class: "number wide" }, rate(t.goodput)), el("td", { class: "wide limiter" }, l ? dot(l.name) : null, l ? limiterName(l) : "–"),
      el("td", {}, el("span", { class: "tag " + kind, title: t.error || "" }, text)));
  }));
  if (!past.length) $("past").replaceChildren(el("tr", {}, el("td", { colspan: 8, class: "quiet" }, "Nothing has ended yet.")));
  $("more").hidden = all || past.length <= fewest;
  put($("more"), "Show all " + past.length);
}

$("more").addEventListener("click", () => { all = true; showHistory(); });

let detail = null;
async function showDetail(t) {
  let x;
  try {
    x = await call("GET", "/api/transfers/" + encodeURIComponent(t.id));
  } catch (e) {
    say(e.message);
    return;
  }
  if (detail) detail.destroy();
  detail = new Timeline(x.receive, false);
  detail.set(x.timeline || []);
  put($("detail-title"), (x.receive ? "Received " : "Sent ") + what(x));
  $("detail-body").replaceChildren(
    ...[el("p", { class: "quiet" }, clientName(x.client) + ", " + clock(x.began) + ", took " + duration(x.seconds) + " · " + bytes(x.written) + " at " + rate(x.goodput) + " · session " + x.id),
      x.error ? el("p", { class: "bad" }, x.error) : null, ...(x.limits || []).slice(0, 2).map(l => why(l, "time")), detail.element, facts(x)].filter(Boolean));
  $("detail").showModal();
  detail.draw();
}
$("detail").addEventListener("close", () => { if (detail) detail.destroy(); detail = null; });

// Clients at doors, if there are any.

const fewestDoors = 12;
let allDoors = false;
$("more-doors").addEventListener("click", () => { allDoors = true; if (latest) showDoors(latest); });
function showDoors(v) {
  const all = v.atDoors, some = allDoors ? all : all.slice(0, fewestDoors);
  $("doors").hidden = $("to-doors").hidden = !all.length;
  $("more-doors").hidden = some.length === all.length;
  put($("more-doors"), "Show all " + all.length);
  $("door-rows").replaceChildren(...some.map(d => el("tr", {},
    el("td", { class: "name" }, clientName(d.client)), el("td", {}, d.door), el("td", { class: "name" }, d.share),
    el("td", { class: "wide" }, d.peer.replace(/:\d+$/, "")), el("td", { class: "wide" }, ago(d.began)),
    el("td", { class: "number" }, bytes(d.received), d.failed ? el("div", { class: "bad" }, d.failed + " failed") : null),
    el("td", { class: "number wide" }, bytes(d.sent)), el("td", { class: "number" }, rate(d.in + d.out)))));
}

// Shares whose files are sent on, if there are any.

let queuesRead = 0;
async function readQueues() {
  if (Date.now() - queuesRead < 2e3) return;
  queuesRead = Date.now();
  let all;
  try {
    all = await call("GET", "/api/queues");
  } catch {
    return;
  }
  $("queues").hidden = $("to-queues").hidden = !all.length;
  $("queue-rows").replaceChildren(...all.map(q => el("tr", {},
    el("td", { class: "name" }, q.share, q.paused ? el("span", { class: "tag warn" }, "paused") : null, q.error ? el("div", { class: "bad" }, q.error) : null),
    el("td", { class: "wide name" }, q.url), el("td", { class: "number" }, String(q.arriving)),
    el("td", { class: "number" }, String(q.waiting), q.failed ? el("div", { class: "bad" }, q.failed + " failed") : null, q.dropped ? el("div", { class: "quiet" }, q.dropped + " dropped") : null),
    el("td", { class: "number" }, String(q.sending)), el("td", { class: "number" }, String(q.there)), el("td", {}, q.oldest ? ago(q.oldest) : "–"))));
}

// Backup jobs of this host, if it has any.

const runs = { good: "good", partial: "warn", failed: "bad", skipped: "", interrupted: "warn" };
let jobsShown = "", jobsRead = 0;
async function readJobs() {
  if (Date.now() - jobsRead < 15e3) return;
  jobsRead = Date.now();
  let v;
  try {
    v = await call("GET", "/api/jobs");
  } catch {
    return;
  }
  $("jobs").hidden = $("to-jobs").hidden = !v.jobs.length && !v.error;
  $("job-fault").hidden = !v.error;
  put($("job-fault"), v.error || "");
  const now = JSON.stringify(v.jobs) + Math.floor(Date.now() / 60e3);
  if (now === jobsShown) return;
  jobsShown = now;
  $("job-rows").replaceChildren(...v.jobs.map(j => el("tr", {},
    el("td", { class: "name" }, j.name, j.alarm ? el("div", { class: "bad" }, j.alarm) : null, j.hint ? el("div", { class: "quiet" }, j.hint) : null),
    el("td", {}, j.good ? ago(j.good) : "none yet"),
    el("td", {}, j.condition === "idle" ? j.outcome ? el("span", { class: "tag " + (runs[j.outcome] || ""), title: j.error }, j.outcome) : "–" : el("span", { class: "tag good" }, j.condition)),
    el("td", { class: "number wide" }, j.ended ? bytes(j.written) : "–"), el("td", { class: "wide limiter" }, j.limiter ? dot(j.limiter) : null, j.limiter || "–"),
    el("td", {}, j.next ? clock(j.next) : "by hand"),
    el("td", { class: "wide" }, j.ends ? clock(j.ends) : "–", j.late ? el("span", { class: "tag warn" }, "past its window") : null))));
}

// Clients.

let clientsShown = "", clientsRead = 0;
async function readClients(strange) {
  if (Date.now() - clientsRead < (strange ? 1e3 : 10e3)) return;
  clientsRead = Date.now();
  let v;
  try {
    v = await call("GET", "/api/clients");
  } catch {
    return;
  }
  clients = new Map(v.clients.map(c => [c.key, c]));
  $("client-fault").hidden = !v.error;
  put($("client-fault"), v.error || "");
  const now = JSON.stringify(v.clients);
  if (now === clientsShown) return;
  clientsShown = now;
  $("client-rows").replaceChildren(...v.clients.map(c => el("tr", { class: c.revoked ? "revoked" : "", "data-key": c.key },
    el("td", { class: "name" }, ownName(c) || el("span", { class: "quiet" }, c.name || "no name")), el("td", { class: "wide name" }, el("code", {}, c.key)),
    el("td", { class: "rights" }, ...c.revoked ? [el("span", { class: "tag bad" }, "revoked")] : (c.rights || "–").split(",").map(r => el("span", {}, r + " "))), el("td", { class: "number wide" }, String(c.transfers)),
    el("td", { class: "number" }, c.revoked || c.key === "*" ? "" : el("button", { type: "button", class: "small danger", onclick: () => revoke(c) }, "Revoke", el("span", { class: "unseen" }, " " + clientName(c.key)))))));
  if (!v.clients.length) $("client-rows").replaceChildren(el("tr", {}, el("td", { colspan: 5, class: "quiet" }, "Nobody is admitted yet: fxfer serve --invite prints a URL that admits one machine.")));
}

async function revoke(c) {
  const yes = await ask("Revoke " + clientName(c.key) + "?",
    "All its rights end for good, and its running transfers at once. It comes back only by fxfer clients add.", "Revoke the client");
  if (!yes) return;
  try {
    await call("POST", "/api/clients/" + encodeURIComponent(c.key) + "/revoke");
    say("Revoked");
  } catch (e) {
    say(e.message);
  }
  clientsRead = 0;
  readClients(true);
}

themeButton(repaint);

// Messages from the server.

function show(v) {
  latest = v;
  showOverview(v);
  showRunning(v);
  showDoors(v);
  showTotals(v.total.at ? v.total : null);
  showShares(v);
  readHistory(v);
  readQueues();
  readJobs();
  readClients(v.transfers.some(t => !clients.has(t.client)));
}

// follow shows each event until the connection ends.
async function follow() {
  const r = await request("/api/events");
  if (r.status === 401) leave();
  if (!r.ok) throw new Error((await r.text()).trim() || r.statusText);
  const reader = r.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const e of events) show(JSON.parse(e.slice("data: ".length)));
  }
}

async function begin() {
  take();
  if (!kept()) return leave();
  try {
    totals = await call("GET", "/api/totals");
    await readClients(false);
  } catch { /* later events show the state */ }
  for (;;) {
    try {
      await follow();
    } catch { /* such as a server that restarts */ }
    state("no connection, trying again", "bad");
    await new Promise(done => setTimeout(done, 3000));
  }
}
begin();
