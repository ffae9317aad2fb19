"""The look and the behaviour of a report's page, as text that is put into it.

The script shows rows a page at a time, so that ten thousand findings stay quick; it writes text with `textContent`
only, so that nothing from an export is ever read as markup.
"""

from __future__ import annotations

from typing import Final

__all__ = ["SCRIPT", "STYLE"]

STYLE: Final = """
:root {
  --ground: #f7f7f5; --card: #ffffff; --ink: #1c1f23; --quiet: #5c646e; --line: #dfe1e4;
  --bad: #b3261e; --bad-ground: #fceeed; --good: #17683a; --good-ground: #e9f5ee;
  --bar: #3b6fb6; --read: #9db8db; --focus: #1a5fd0; --chip: #eef0f2;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #14171a; --card: #1d2125; --ink: #e8eaed; --quiet: #a3abb5; --line: #343a41;
    --bad: #ff8f86; --bad-ground: #3a1d1b; --good: #7fd6a2; --good-ground: #16301f;
    --bar: #7da9e6; --read: #44608a; --focus: #8ab4ff; --chip: #2a3036;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
}
main { max-width: 68rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 {
  display: flex; gap: .75rem; align-items: center; font-size: clamp(1.5rem, 5vw, 2.25rem); line-height: 1.2;
  margin: 0 0 .5rem;
}
h2 { font-size: 1.25rem; margin: 0 0 .75rem; }
section {
  background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 1.25rem;
  margin-top: 1rem;
}
.quiet { color: var(--quiet); font-size: .9rem; margin: .5rem 0; font-weight: 400; }
.verdict { border-radius: 12px; padding: 1.5rem 1.25rem; border: 1px solid; }
[data-state=bad] .verdict { background: var(--bad-ground); border-color: var(--bad); }
[data-state=good] .verdict { background: var(--good-ground); border-color: var(--good); }
.verdict p { margin: .25rem 0; max-width: 62ch; }
.kicker {
  text-transform: uppercase; letter-spacing: .08em; font-size: .75rem; font-weight: 600; color: var(--quiet);
}
.sign {
  flex: none; width: 1.5em; height: 1.5em; border-radius: 50%; display: grid; place-items: center;
  color: var(--card); font-weight: 700; font-size: .8em;
}
[data-state=bad] .sign { background: var(--bad); }
[data-state=good] .sign { background: var(--good); }
.about {
  list-style: none; margin: .75rem 0 0; padding: 0; color: var(--quiet); font-size: .875rem;
  overflow-wrap: anywhere;
}
.numbers {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: .75rem; margin: 1rem 0 0;
}
.numbers div { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: .75rem 1rem; }
.numbers dt { color: var(--quiet); font-size: .85rem; }
.numbers dd { margin: 0; font-size: 1.4rem; font-weight: 600; font-variant-numeric: tabular-nums; }
.tools { display: flex; flex-wrap: wrap; gap: .75rem 1rem; align-items: center; justify-content: space-between; }
.chips { display: flex; flex-wrap: wrap; gap: .4rem; }
button { font: inherit; color: inherit; cursor: pointer; }
.chip {
  border: 1px solid transparent; background: var(--chip); border-radius: 99px; padding: .3rem .75rem;
  font-size: .9rem; min-height: 2.25rem;
}
.chip b { font-variant-numeric: tabular-nums; margin-left: .15rem; }
.chip[aria-pressed=true] { background: var(--ink); color: var(--card); }
.search {
  display: flex; gap: .5rem; align-items: center; flex: 1 1 16rem; max-width: 26rem; font-size: .9rem;
  color: var(--quiet);
}
input[type=search] {
  font: inherit; flex: 1; min-width: 0; color: var(--ink); background: var(--ground);
  border: 1px solid var(--line); border-radius: 8px; padding: .45rem .6rem;
}
.switch { display: flex; gap: .5rem; align-items: center; min-height: 2.25rem; }
:focus-visible { outline: 3px solid var(--focus); outline-offset: 2px; }
.list { list-style: none; margin: .5rem 0 0; padding: 0; }
.list li { border-top: 1px solid var(--line); padding: .75rem 0; }
.finding { display: grid; grid-template-columns: 9rem 1fr; gap: .25rem 1rem; }
.kind { font-weight: 600; color: var(--bad); }
.facts {
  grid-column: 2; color: var(--quiet); font-size: .85rem; display: flex; flex-wrap: wrap; gap: .1rem 1rem;
  align-items: baseline;
}
.id {
  font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: .85rem;
  overflow-wrap: anywhere;
}
button.id {
  background: none; border: 0; padding: 0; text-align: left; text-decoration: underline dotted;
  text-underline-offset: 3px;
}
.row { display: flex; flex-wrap: wrap; gap: .1rem 1rem; justify-content: space-between; align-items: baseline; }
.ok { color: var(--good); font-weight: 600; font-size: .9rem; }
.nok { color: var(--bad); font-weight: 600; font-size: .9rem; }
.strip {
  position: relative; height: 14px; margin: .45rem 0 .35rem; background: var(--chip); border-radius: 4px;
  overflow: hidden;
}
.strip i { position: absolute; top: 0; bottom: 0; min-width: 3px; }
.read { background: var(--read); }
.hole { background: var(--bad); }
.tip { background: var(--good); }
.key {
  display: inline-block; width: .9rem; height: .75rem; border-radius: 2px; margin-right: .25rem;
  vertical-align: -1px;
}
.legend { display: flex; flex-wrap: wrap; gap: .1rem 1rem; }
section > :last-child { margin-bottom: 0; }
.pages { display: flex; flex-wrap: wrap; gap: .5rem; align-items: center; margin-top: .75rem; font-size: .9rem; }
.pages:empty { display: none; }
.pages button {
  border: 1px solid var(--line); background: var(--ground); border-radius: 8px; padding: .4rem .8rem;
  min-height: 2.25rem;
}
.pages button:disabled { opacity: .45; cursor: default; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 19rem), 1fr)); gap: 1.5rem; }
.plot { margin: 0; min-width: 0; }
figcaption { font-weight: 600; }
svg { width: 100%; height: auto; display: block; }
.grid { stroke: var(--line); }
.tick, .axis { fill: var(--quiet); font-size: 21px; font-variant-numeric: tabular-nums; }
.bar { fill: var(--bar); }
.hover { fill: transparent; }
g:hover .hover { fill: var(--chip); }
.mark { fill: var(--bad); }
details summary { cursor: pointer; color: var(--quiet); font-size: .9rem; padding: .35rem 0; }
.scroll { max-height: 18rem; overflow: auto; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid var(--line); font-weight: 400; }
thead th { color: var(--quiet); }
.words dl { margin: .5rem 0 0; display: grid; gap: .5rem; }
.words dt { font-weight: 600; }
.words dd { margin: 0; }
.skip { position: absolute; left: -99rem; }
.skip:focus { left: 1rem; top: 1rem; background: var(--card); padding: .5rem 1rem; z-index: 1; }
@media (max-width: 40rem) {
  section { padding: 1rem; }
  .finding { grid-template-columns: 1fr; }
  .facts { grid-column: 1; }
  .numbers { grid-template-columns: repeat(2, 1fr); }
  .search { max-width: none; flex-basis: 100%; }
}
@media print { .tools, .pages, .skip { display: none; } section { break-inside: avoid; } }
"""

SCRIPT: Final = """
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const count = (n) => n.toLocaleString("en");
const things = (n, thing) => count(n) + " " + thing + (n === 1 ? "" : "s");

function make(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

// A list shown a page at a time: `rows` filtered by `keep`, each drawn by `draw`.
function paged(name, size, rows, keep, draw, thing) {
  const list = byId(name + "-list"), nav = byId(name + "-pages"), status = byId(name + "-count");
  if (!list) return () => {};
  let page = 0, kept = rows;
  function show(focus) {
    const pages = Math.max(1, Math.ceil(kept.length / size));
    page = Math.min(Math.max(page, 0), pages - 1);
    list.replaceChildren(...kept.slice(page * size, page * size + size).map(draw));
    list.start = page * size + 1;
    status.textContent = kept.length === rows.length ? things(rows.length, thing)
      : count(kept.length) + " of " + things(rows.length, thing);
    if (pages === 1) return nav.replaceChildren();
    const turn = (label, to, off) => {
      const button = make("button", "", label);
      button.type = "button";
      button.disabled = off;
      button.addEventListener("click", () => { page = to; show(label); });
      return button;
    };
    nav.replaceChildren(
      turn("First", 0, page === 0), turn("Previous", page - 1, page === 0),
      make("span", "", "page " + count(page + 1) + " of " + count(pages)),
      turn("Next", page + 1, page === pages - 1), turn("Last", pages - 1, page === pages - 1));
    if (focus) [...nav.children].find((b) => b.textContent === focus && !b.disabled)?.focus({preventScroll: true});
  }
  return (keepPage) => { kept = rows.filter(keep); if (!keepPage) page = 0; show(); };
}

const chosen = new Set();
const findingText = byId("f-text");
let wanted = "";
const findings = data.findings.map((f) => ({
  service: data.services[f[0]], queue: f[1], seq: f[2], last: f[3], epoch: f[4], kind: data.kinds[f[5]], sentence: f[6],
  text: (data.services[f[0]] + " " + f[1] + " " + f[2] + " " + data.kinds[f[5]] + " " + f[6]).toLowerCase(),
}));
const showFindings = paged("f", 25, findings,
  (f) => (chosen.size === 0 || chosen.has(f.kind)) && (wanted === "" || f.text.includes(wanted)),
  drawFinding, "finding");

function range(first, last) {
  if (first === null) return "no number";
  return last === null || last === first ? "number " + count(first) : "numbers " + count(first) + " to " + count(last);
}

function drawFinding(f) {
  const item = make("li", "finding");
  const facts = make("div", "facts");
  const queue = make("button", "id", f.queue || "no queue id");
  queue.type = "button";
  queue.title = "Show only this queue";
  queue.disabled = f.queue === "";
  queue.addEventListener("click", () => {
    findingText.value = f.queue;
    findingText.dispatchEvent(new Event("input"));
  });
  facts.append(make("span", "", range(f.seq, f.last)));
  if (f.epoch !== null) facts.append(make("span", "", "epoch " + count(f.epoch)));
  facts.append(queue, make("span", "", f.service));
  item.append(make("span", "kind", f.kind), make("span", "", f.sentence), facts);
  return item;
}

for (const chip of document.querySelectorAll(".chip")) {
  chip.addEventListener("click", () => {
    const kind = chip.dataset.kind;
    if (!chosen.delete(kind)) chosen.add(kind);
    chip.setAttribute("aria-pressed", String(chosen.has(kind)));
    showFindings();
  });
}
findingText?.addEventListener("input", () => { wanted = findingText.value.trim().toLowerCase(); showFindings(); });

const onlyBad = byId("q-bad"), queueText = byId("q-text");
let wantedQueue = "";
const queues = data.queues.map((q) => ({
  service: data.services[q[0]], id: q[1], frames: q[2], messages: q[3], bytes: q[4], epochs: q[5],
  first: q[6], last: q[7], findings: q[8], head: q[9], verified: q[10], marks: q[11],
}));
const showQueues = paged("q", 20, queues,
  (q) => (!onlyBad.checked || q.findings > 0 || !q.verified) && (wantedQueue === "" || q.id.includes(wantedQueue)),
  drawQueue, "queue");

function piece(className, from, to, whole) {
  const mark = make("i", className);
  mark.style.left = "min(" + (100 * from / whole) + "%, calc(100% - 3px))";
  mark.style.width = (100 * (to - from) / whole) + "%";
  return mark;
}

function drawQueue(q) {
  const item = make("li"), row = make("div", "row"), strip = make("div", "strip");
  const state = q.verified ? make("span", "ok", "\u2713 verified")
    : make("span", "nok", q.findings ? things(q.findings, "finding") : "not verified");
  row.append(make("span", "id", q.id || "no queue id"), state);
  const ends = [q.last ?? 0, ...q.marks.map((m) => m[1])];
  const whole = Math.max(...ends) + 1;
  if (q.last !== null) strip.append(piece("read", q.first, q.last + 1, whole));
  for (const m of q.marks) strip.append(piece("hole", m[0], m[1] + 1, whole));
  if (q.head) strip.append(piece("tip", whole, whole, whole));
  strip.setAttribute("role", "img");
  strip.setAttribute("aria-label", q.last === null ? "no frames"
    : "numbers " + q.first + " to " + q.last + ", findings at "
    + (q.marks.slice(0, 20).map((m) => m[0] === m[1] ? m[0] : m[0] + " to " + m[1]).join(", ") || "none"));
  const end = q.head === true ? "end confirmed" : q.head === false ? "not confirmed by its head" : "end not confirmed";
  const facts = make("div", "facts");
  facts.append(...[range(q.first, q.last), things(q.frames, "frame"), things(q.messages, "message"),
    things(q.epochs, "epoch"), things(q.bytes, "byte"), end, q.service].map((t) => make("span", "", t)));
  item.append(row, strip, facts);
  return item;
}

onlyBad.addEventListener("change", () => showQueues());
queueText.addEventListener("input", () => { wantedQueue = queueText.value.trim().toLowerCase(); showQueues(); });
showFindings();
showQueues();
"""
