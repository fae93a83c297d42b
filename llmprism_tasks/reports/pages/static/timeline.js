// Draws the lanes of a timeline on a canvas: zoom, pan, and a click that shows the flows behind a slice.
"use strict";
(function () {
  const canvas = document.getElementById("timeline");
  const told = JSON.parse(document.getElementById("lanes").textContent);
  const tip = document.getElementById("tip");
  const pen = canvas.getContext("2d");
  const slices = told.slices;
  const zero = BigInt(told.zero_ns);

  const AXIS = 44, FOOT = 6, GAP = 1;
  const NAMES = 104, WIDE = 206, NARROW = 700; // pixels: where names of NICs begin and end, and a page without room for them
  const LOWEST = 8, READABLE = 8, HIGHEST = 26, BELOW = 40; // pixels: of lanes, and of what is to be seen below all of them
  const DOUBLE_MS = 300; // within which a second click makes a double click
  const SHORTEST_NS = 20000; // a view of 20 µs: less than a flow record can tell
  const STATES = new Set(["compute", "idle"]); // drawn in the upper part of a lane, over the messages
  const UPPER = 0.66;
  const WORDS = { compute: "computing (inferred)", pp_send: "pp_send", pp_recv: "pp_recv", dp_sync: "dp_sync", idle: "idle", other: "other" };

  // The slices of each lane, in the order of their starts, and the longest of each: what is in view begins at most so early.
  const byLane = told.lanes.map(() => []);
  slices.lane.forEach((lane, number) => { if (lane >= 0) byLane[lane].push(number); });
  byLane.forEach((lane) => lane.sort((one, other) => slices.start[one] - slices.start[other]));
  const longest = byLane.map((lane) => lane.reduce((most, one) => Math.max(most, slices.end[one] - slices.start[one]), 0));

  let from = 0, to = told.span_ns || 1, chosen = -1, listed = -1, width = 0, height = 0, laneHeight = 10, gutter = 0, colours = {};

  function colour(name) { return colours[name] || (colours[name] = colourOf(name)); }
  function xOf(ns) { return gutter + ((ns - from) / (to - from)) * (width - gutter); }
  function nsOf(x) { return from + ((x - gutter) / (width - gutter)) * (to - from); }
  function yOf(lane) { return AXIS + lane * laneHeight; }

  function firstInView(lane) {
    const order = byLane[lane], least = from - longest[lane];
    let low = 0, high = order.length;
    while (low < high) { const middle = (low + high) >> 1; if (slices.start[order[middle]] < least) low = middle + 1; else high = middle; }
    return low;
  }

  function resize() {
    width = canvas.clientWidth;
    const room = window.innerHeight - canvas.getBoundingClientRect().top - window.scrollY - AXIS - FOOT - BELOW;
    laneHeight = Math.max(LOWEST, Math.min(HIGHEST, Math.floor(room / Math.max(told.lanes.length, 1))));
    gutter = width < NARROW || laneHeight < READABLE ? NAMES : WIDE;
    height = AXIS + laneHeight * told.lanes.length + FOOT;
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = height + "px";
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    draw();
  }

  function draw() {
    pen.clearRect(0, 0, width, height);
    pen.font = "12px " + getComputedStyle(document.body).fontFamily;
    pen.textBaseline = "middle";
    drawLanes();
    drawSteps();
    drawLabels();
    Object.assign(canvas.dataset, { from: Math.round(from), to: Math.round(to), gutter, axis: AXIS, lane: laneHeight });
  }

  function drawLanes() {
    pen.save();
    pen.beginPath();
    pen.rect(gutter, AXIS - 2, width - gutter, height - AXIS);
    pen.clip();
    const tall = laneHeight - GAP;
    told.lanes.forEach((lane, row) => {
      const y = yOf(row);
      if (lane.suspect) { pen.fillStyle = colour("--culprit-bg"); pen.fillRect(gutter, y, width - gutter, laneHeight); }
      drawSlices(row, false, y, tall); // messages first, over the whole lane; computing lies on top of them
      drawSlices(row, true, y, Math.max(3, Math.round(tall * UPPER)));
    });
    frameSuspects(tall);
    if (chosen >= 0) {
      pen.strokeStyle = colour("--ink");
      pen.lineWidth = 2;
      const left = xOf(slices.start[chosen]);
      pen.strokeRect(left, yOf(slices.lane[chosen]), Math.max(xOf(slices.end[chosen]) - left, 3), tall);
    }
    pen.restore();
  }

  // A frame around each run of suspects, so that they are found without colour, too.
  function frameSuspects(tall) {
    pen.strokeStyle = colour("--culprit");
    pen.lineWidth = 2;
    told.lanes.forEach((lane, row) => {
      if (!lane.suspect || (row && told.lanes[row - 1].suspect)) return;
      let last = row;
      while (last + 1 < told.lanes.length && told.lanes[last + 1].suspect) last++;
      pen.strokeRect(gutter + 1, yOf(row) - 0.5, width - gutter - 2, (last - row) * laneHeight + tall + 1);
    });
  }

  function drawSlices(row, states, y, tall) {
    const order = byLane[row], lastX = {}; // where the last one of a phase ended: of those below a pixel one is drawn
    for (let place = firstInView(row); place < order.length; place++) {
      const one = order[place];
      if (slices.start[one] > to) break;
      if (slices.end[one] < from) continue;
      const phase = told.phases[slices.phase[one]];
      if (STATES.has(phase) !== states) continue;
      const left = Math.max(xOf(slices.start[one]), gutter - 1), right = Math.min(xOf(slices.end[one]), width + 1);
      if (right - left < 1 && left < lastX[phase] + 0.7) continue;
      lastX[phase] = Math.max(right, left + 1);
      const wide = Math.max(right - left - (right - left > 4 ? 0.75 : 0), 1); // a gap keeps micro-batches apart
      pen.fillStyle = colour("--" + phase);
      if (phase === "idle") { // pale: messages may be in flight below it, but the NIC waits
        pen.globalAlpha = 0.7;
        pen.fillStyle = colour("--surface");
        pen.fillRect(left, y, wide, laneHeight - GAP);
        pen.globalAlpha = 1;
        pen.fillStyle = colour("--idle");
        pen.fillRect(left, y + Math.floor(tall / 2), wide, 1);
      } else pen.fillRect(left, y, wide, tall);
      if (slices.micro_batch[one] >= 0) number(one, left, wide, y, tall);
    }
  }

  // The number of a message's micro-batch, with an arrow for its direction, where there is room.
  function number(one, left, wide, y, tall) {
    const text = ["→", "←"][slices.direction[one]] + (slices.micro_batch[one] + 1);
    pen.font = Math.min(11, tall + 2) + "px " + getComputedStyle(document.body).fontFamily;
    if (pen.measureText(text).width + 4 > wide) return;
    pen.fillStyle = "#000";
    pen.textAlign = "center";
    pen.fillText(text, left + wide / 2, y + tall / 2);
  }

  function drawSteps() {
    pen.fillStyle = colour("--soft");
    pen.textAlign = "center";
    const nice = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000].map((us) => us * 1e3)
      .concat([20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 60000].map((ms) => ms * 1e6));
    const every = nice.find((one) => ((width - gutter) * one) / (to - from) > 84) || 6e10;
    for (let at = Math.ceil(from / every) * every; at <= to; at += every) {
      const x = xOf(at);
      if (x < gutter + 14 || x > width - 14) continue;
      pen.fillText(length(at, every), x, 29);
      pen.fillRect(x, 38, 1, 4);
    }
    let free = gutter; // right end of the last title, for the next one is left out where they would overlap
    for (const step of told.steps) {
      const left = Math.max(xOf(step.start), gutter), right = Math.min(xOf(step.end), width);
      const title = "step " + step.index + ", " + ((step.end - step.start) / 1e9).toFixed(2) + " s";
      const half = pen.measureText(title).width / 2 + 4, middle = (left + right) / 2;
      if (right - left > 2 * half && middle - half >= free) {
        pen.fillStyle = colour("--ink");
        pen.fillText(title, middle, 11);
        free = middle + half;
      }
      for (const at of [step.start, step.end]) {
        const x = Math.round(xOf(at)) + 0.5;
        if (x < gutter || x > width) continue;
        pen.strokeStyle = colour("--ink");
        pen.lineWidth = 1;
        pen.setLineDash([4, 3]);
        pen.beginPath(); pen.moveTo(x, 2); pen.lineTo(x, 20); pen.moveTo(x, AXIS - 4); pen.lineTo(x, height); pen.stroke();
        pen.setLineDash([]);
      }
    }
  }

  function drawLabels() {
    pen.textAlign = "left";
    let host = null, stage = null;
    pen.fillStyle = colour("--soft");
    pen.fillText("host", 10, 29);
    if (gutter > NAMES) pen.fillText("NIC", NAMES, 29);
    told.lanes.forEach((lane, row) => {
      const y = yOf(row), middle = y + laneHeight / 2;
      if (lane.stage !== stage && row) { pen.fillStyle = colour("--rule-strong"); pen.fillRect(0, y - 1, width, 1.5); }
      else if (lane.host !== host && row) { pen.fillStyle = colour("--rule"); pen.fillRect(0, y - 1, gutter, 1); }
      pen.fillStyle = lane.suspect ? colour("--culprit") : colour("--soft");
      const bold = lane.suspect ? "600 " : "";
      pen.font = bold + "12px " + getComputedStyle(document.body).fontFamily;
      if (lane.host !== host || lane.stage !== stage) {
        const name = (lane.suspect ? "▶ " : "") + fitted(lane.host, lane.suspect ? 78 : 90);
        pen.fillText(name, 10, Math.max(middle, y + 7));
      }
      if (gutter > NAMES) {
        pen.font = bold + Math.min(11, laneHeight) + "px " + getComputedStyle(document.body).fontFamily;
        pen.fillText(fitted(lane.name, 92), NAMES, middle);
      }
      host = lane.host; stage = lane.stage;
    });
    pen.font = "12px " + getComputedStyle(document.body).fontFamily;
  }

  function fitted(text, most) {
    if (pen.measureText(text).width <= most) return text;
    let cut = text;
    while (cut && pen.measureText(cut + "…").width > most) cut = cut.slice(0, -1);
    return cut + "…";
  }

  function length(ns, grain) {
    const unit = grain || ns;
    if (unit >= 1e9 || ns >= 1e10) return (ns / 1e9).toFixed(unit >= 1e9 ? 0 : 2) + " s";
    if (unit >= 1e6 || !grain) return ns >= 1e9 ? (ns / 1e9).toFixed(unit >= 1e8 ? 1 : unit >= 1e7 ? 2 : 3) + " s" : ns >= 1e6 || grain ? (ns / 1e6).toFixed(grain ? 0 : 2) + " ms" : (ns / 1e3).toFixed(1) + " µs";
    return (ns / 1e6).toFixed(3) + " ms";
  }

  function at(x, y) {
    const row = Math.floor((y - AXIS) / laneHeight);
    if (x < gutter || row < 0 || row >= told.lanes.length) return -1;
    const upper = (y - AXIS) % laneHeight < (laneHeight - GAP) * UPPER;
    const reach = ((to - from) / (width - gutter)) * 3; // three pixels: messages are thin
    const time = nsOf(x);
    let best = -1, least = Infinity;
    for (let place = firstInView(row); place < byLane[row].length; place++) {
      const one = byLane[row][place];
      if (slices.start[one] > time + reach) break;
      const away = Math.max(slices.start[one] - time, time - slices.end[one], 0) / reach;
      const hidden = STATES.has(told.phases[slices.phase[one]]) !== upper ? 2 : 0; // what lies below, where nothing else is
      if (away <= 1 && away + hidden < least) { best = one; least = away + hidden; }
    }
    return best;
  }

  function describe(one) {
    const lane = told.lanes[slices.lane[one]], phase = told.phases[slices.phase[one]];
    const lines = [WORDS[phase] + ", " + length(slices.end[one] - slices.start[one])];
    if (slices.peer[one] >= 0) lines.push((phase === "pp_recv" ? "from " : "with ") + told.peers[slices.peer[one]].slice(0, 80));
    if (slices.bytes[one]) lines.push(bytes(slices.bytes[one]));
    if (slices.direction[one] >= 0 || slices.micro_batch[one] >= 0) {
      const of = slices.micro_batch[one] >= 0 ? "micro-batch " + (slices.micro_batch[one] + 1) : "micro-batches";
      lines.push((slices.direction[one] === 1 ? "backward, " : slices.direction[one] === 0 ? "forward, " : "") + of);
    }
    lines.push("NIC " + lane.name + " on " + lane.host + ", step " + slices.step[one]);
    return lines;
  }

  function bytes(count) {
    const units = ["B", "kB", "MB", "GB", "TB"];
    const power = Math.min(Math.floor(Math.log10(count) / 3), 4);
    return (count / 1000 ** power).toPrecision(3) + " " + units[power];
  }

  function zoom(factor, x) {
    const middle = nsOf(x === undefined ? (gutter + width) / 2 : Math.max(x, gutter));
    const span = Math.min(Math.max((to - from) * factor, SHORTEST_NS), told.span_ns);
    const share = (middle - from) / (to - from);
    view(middle - span * share, span);
  }

  function view(start, span) {
    from = Math.min(Math.max(start, 0), told.span_ns - span);
    to = from + span;
    draw();
  }

  function pan(share) { view(from + (to - from) * share, to - from); }

  async function choose(one) {
    chosen = one;
    draw();
    if (one === listed) return; // a double click chooses twice
    listed = one;
    const section = document.getElementById("slice"), table = document.getElementById("slice-flows");
    section.hidden = one < 0;
    if (one < 0) return;
    const lane = told.lanes[slices.lane[one]], start = zero + BigInt(slices.start[one]), end = zero + BigInt(slices.end[one]);
    const [what, ...rest] = describe(one);
    document.getElementById("slice-title").textContent = what;
    const inferred = told.phases[slices.phase[one]] === "compute" || told.phases[slices.phase[one]] === "idle";
    const facts = document.getElementById("slice-facts");
    facts.textContent = rest.join(", ") + ". " + (inferred ? "Flows do not show it: it is the gap between the flows below." : "The flows behind it:");
    table.replaceChildren();
    const peer = slices.peer[one] >= 0 ? { peer: told.peers[slices.peer[one]] } : {};
    const asked = new URLSearchParams({ addr: lane.addr, start, end, ...peer });
    if (location.protocol === "file:") { facts.textContent += " This file has no flows in it; a served page shows them."; return; }
    try {
      const answer = await fetch("flows?" + asked);
      if (!answer.ok) throw new Error("status " + answer.status);
      const found = await answer.json();
      if (listed === one) show(table, found); // else another one was chosen meanwhile
      section.scrollIntoView({ block: "nearest" });
    } catch (error) {
      listed = -1;
      facts.textContent += " They could not be read (" + error.message + "). Try again.";
    }
  }

  function show(table, found) {
    table.className = "mono";
    const head = table.createTHead().insertRow();
    for (const name of found.columns) { const cell = document.createElement("th"); cell.scope = "col"; cell.textContent = name; head.append(cell); }
    const body = table.createTBody();
    for (const row of found.rows) { const line = body.insertRow(); for (const value of row) line.insertCell().textContent = value === null ? "" : value; }
    if (!found.rows.length) body.insertRow().insertCell().textContent = "No flow of that time is kept.";
    if (found.more) body.insertRow().insertCell().textContent = "and more";
  }

  let grabbed = null, clicked = 0;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    grabbed = { x: event.offsetX, from, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (grabbed) {
      if (Math.abs(event.offsetX - grabbed.x) > 3) grabbed.moved = true;
      if (grabbed.moved) { canvas.classList.add("moving"); tip.hidden = true; view(grabbed.from - ((event.offsetX - grabbed.x) / (width - gutter)) * (to - from), to - from); }
      return;
    }
    const one = at(event.offsetX, event.offsetY);
    tip.hidden = one < 0;
    if (one < 0) return;
    tip.textContent = describe(one).join("\n");
    tip.style.left = Math.min(event.pageX + 14, document.documentElement.clientWidth - 350) + "px";
    tip.style.top = event.pageY + 16 + "px";
  });
  canvas.addEventListener("pointerup", (event) => {
    canvas.classList.remove("moving");
    if (grabbed && !grabbed.moved) {
      const one = at(event.offsetX, event.offsetY);
      clearTimeout(clicked);
      clicked = setTimeout(() => choose(one), DOUBLE_MS); // the flows move the page, so not between two clicks
    }
    grabbed = null;
  });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  canvas.addEventListener("dblclick", (event) => { clearTimeout(clicked); zoom(0.4, event.offsetX); });
  canvas.addEventListener("wheel", (event) => {
    if (!(event.ctrlKey || event.metaKey || event.altKey)) return;
    event.preventDefault();
    zoom(Math.exp(event.deltaY * 0.004), event.offsetX);
  }, { passive: false });
  const acts = { in: () => zoom(0.5), out: () => zoom(2), left: () => pan(-0.25), right: () => pan(0.25), all: () => view(0, told.span_ns) };
  const keys = { "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", 0: "all" };
  canvas.addEventListener("keydown", (event) => {
    const act = keys[event.key];
    if (act && !event.ctrlKey && !event.metaKey) { event.preventDefault(); acts[act](); }
  });
  for (const button of document.querySelectorAll("[data-do]")) button.addEventListener("click", acts[button.dataset.do]);
  addEventListener("scheme", () => { colours = {}; draw(); });
  new ResizeObserver(() => { if (canvas.clientWidth !== width) resize(); }).observe(canvas);
  resize();
})();
