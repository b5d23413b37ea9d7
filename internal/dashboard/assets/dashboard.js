// SPDX-License-Identifier: Apache-2.0
"use strict";
(() => {
  const main = document.getElementById("main");
  const stale = document.getElementById("stale");
  const words = {};

  // The part of the page that the server made is fetched again after each change.
  let shown = "", asked = false, again = false;
  async function refresh() {
    if (asked) { again = true; return; }
    asked = true;
    try {
      const url = new URL(location.href);
      url.searchParams.set("part", "");
      const answer = await fetch(url);
      if (answer.status === 401) { location.reload(); return; } // The login page.
      if (!answer.ok) throw new Error(await answer.text());
      const html = await answer.text();
      if (html !== shown) replace(html);
      shown = html;
      await drawFleet();
      stale.textContent = "";
    } catch (problem) {
      outdated(problem.message || "The server does not answer.");
    }
    asked = false;
    if (again) { again = false; refresh(); }
  }

  function outdated(why) { stale.textContent = "What is shown may be out of date. " + why; }

  // Replacing the part keeps open what was open, the text in inputs, and the focus.
  function replace(html) {
    const open = [...main.querySelectorAll("details[open]")].map((d) => d.id);
    const logs = Object.fromEntries([...main.querySelectorAll("[data-log]")].map((p) => [p.dataset.log, p.textContent]));
    const focus = document.activeElement, at = path(focus);
    if (focus && main.contains(focus) && focus.tagName === "INPUT") return;
    const fleet = document.getElementById("fleet"), tip = document.getElementById("tip");
    main.innerHTML = html;
    const place = document.getElementById("fleet");
    if (place && fleet) place.replaceWith(fleet);
    const line = document.getElementById("tip");
    if (line && tip) line.replaceWith(tip);
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    for (const p of main.querySelectorAll("[data-log]")) p.textContent = logs[p.dataset.log] || "";
    if (at) find(at)?.focus({ preventScroll: true });
    drawKeys();
  }

  function path(e) {
    if (!e || !main.contains(e) || e === main) return null;
    if (e.closest("#fleet")) return { canvas: e.dataset.group };
    if (e.tagName === "A") return { href: e.getAttribute("href") };
    if (e.tagName === "SUMMARY") return { id: e.parentElement.id };
    return null;
  }
  function find(at) {
    if (at.href) return [...main.querySelectorAll("a")].find((a) => a.getAttribute("href") === at.href);
    if (at.id) return document.getElementById(at.id)?.querySelector("summary");
    return [...main.querySelectorAll("#fleet canvas")].find((c) => c.dataset.group === at.canvas);
  }

  // The server says when there is something new. A broken connection begins again by itself.
  // A browser keeps few connections to a server: a page that is not seen gives its own up.
  let events = null;
  function follow() {
    events?.close();
    events = new EventSource("/changes");
    events.onmessage = (e) => {
      if (e.data !== main.dataset.version || stale.textContent) refresh();
      main.dataset.version = e.data;
    };
    events.onerror = () => {
      outdated("The connection is lost; it is tried again.");
      if (events.readyState === EventSource.CLOSED) setTimeout(follow, 5000); // The server answered with an error.
    };
  }
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { events?.close(); return; }
    follow();
    refresh();
  });

  // The fleet: a canvas for each group, a cell for each node. The shape says the same as the colour.
  const colours = () => {
    const style = getComputedStyle(document.documentElement), of = (name) => style.getPropertyValue("--" + name).trim();
    return { F: of("failed"), U: of("updating"), S: of("soaking"), W: of("waiting"), N: of("next"), D: of("updated"), "-": of("line"), text: of("text"), back: of("back") };
  };

  function drawCell(c, colour, state, mark, x, y, size) {
    const s = size - 1, h = s / 2;
    c.fillStyle = c.strokeStyle = colour[state];
    c.lineWidth = Math.max(1, size / 8);
    c.beginPath();
    switch (state) {
      case "F": // a cross
        c.moveTo(x, y); c.lineTo(x + s, y + s); c.moveTo(x + s, y); c.lineTo(x, y + s); c.lineWidth = Math.max(2, size / 4); c.stroke(); break;
      case "U": // a triangle
        c.moveTo(x, y); c.lineTo(x + s, y + h); c.lineTo(x, y + s); c.fill(); break;
      case "S": // a disc
        c.arc(x + h, y + h, h, 0, 2 * Math.PI); c.fill(); break;
      case "N": // a frame with a dot
        c.strokeRect(x + .5, y + .5, s - 1, s - 1); c.fillRect(x + h - 1, y + h - 1, 2, 2); break;
      case "W": // a frame
        c.strokeRect(x + .5, y + .5, s - 1, s - 1); break;
      default: // a square; a small one for a node in no rollout
        if (state === "-") c.fillRect(x + s / 4, y + s / 4, h, h); else c.fillRect(x, y, s, s);
    }
    if (mark === "x" || mark === "c") {
      c.strokeStyle = mark === "x" ? colour.F : colour.text;
      c.lineWidth = Math.max(1, size / 8);
      c.beginPath();
      c.moveTo(x, y + s); c.lineTo(x + s, mark === "x" ? y : y + s);
      c.stroke();
    }
  }

  function drawKeys() {
    const colour = colours();
    for (const key of main.querySelectorAll("canvas.key")) {
      const c = key.getContext("2d");
      c.clearRect(0, 0, 14, 14);
      drawCell(c, colour, key.dataset.cell || "D", key.dataset.mark, 1, 1, 13);
      words[key.dataset.cell || key.dataset.mark] = key.parentElement.textContent.trim();
    }
  }

  let fleet = null;
  async function drawFleet() {
    const place = document.getElementById("fleet");
    if (!place) return;
    const answer = await fetch("/fleet.json?by=" + encodeURIComponent(place.dataset.by));
    if (!answer.ok) throw new Error(await answer.text());
    fleet = await answer.json();
    paint();
  }

  function paint() {
    const place = document.getElementById("fleet");
    if (!place || !fleet) return;
    const count = fleet.groups.reduce((n, g) => n + g.nodes.length, 0);
    const size = count > 3000 ? 9 : count > 500 ? 13 : 18, width = Math.max(size, place.clientWidth || 300);
    const columns = Math.max(1, Math.floor(width / size)), colour = colours(), ratio = window.devicePixelRatio || 1;
    while (place.children.length > fleet.groups.length) place.lastChild.remove();
    fleet.groups.forEach((g, i) => {
      let box = place.children[i];
      if (!box) {
        box = document.createElement("div");
        box.append(document.createElement("h3"), document.createElement("canvas"));
        place.append(box);
        listen(box.lastChild);
      }
      box.firstChild.textContent = g.name + " (" + g.nodes.length + ")";
      const canvas = box.lastChild, rows = Math.ceil(g.nodes.length / columns);
      Object.assign(canvas.dataset, { group: g.name, index: i, size, columns });
      canvas.tabIndex = 0;
      canvas.setAttribute("role", "application");
      canvas.setAttribute("aria-label", "Nodes of " + g.name + ": " + summary(g) + ". Arrow keys choose a node, Enter opens it.");
      canvas.width = columns * size * ratio;
      canvas.height = rows * size * ratio;
      canvas.style.width = columns * size + "px";
      canvas.style.height = rows * size + "px";
      const c = canvas.getContext("2d");
      c.scale(ratio, ratio);
      for (let n = 0; n < g.nodes.length; n++) {
        drawCell(c, colour, g.states[n], g.marks[n], (n % columns) * size, Math.floor(n / columns) * size, size);
      }
      if (canvas === document.activeElement && canvas.dataset.chosen) choose(canvas, +canvas.dataset.chosen);
    });
  }

  function summary(g) {
    const counts = {};
    for (const s of g.states) counts[s] = (counts[s] || 0) + 1;
    return Object.entries(counts).map(([s, n]) => n + " " + (words[s] || s)).join(", ");
  }

  function listen(canvas) {
    const group = () => fleet.groups[+canvas.dataset.index];
    const under = (e) => {
      const size = +canvas.dataset.size, n = Math.floor(e.offsetY / size) * +canvas.dataset.columns + Math.floor(e.offsetX / size);
      return n < group().nodes.length ? n : -1;
    };
    const open = (n) => { if (n >= 0) location.href = "/nodes/" + encodeURIComponent(group().nodes[n]); };
    canvas.addEventListener("mousemove", (e) => tell(group(), under(e)));
    canvas.addEventListener("click", (e) => open(under(e)));
    canvas.addEventListener("focus", () => choose(canvas, +(canvas.dataset.chosen || 0)));
    canvas.addEventListener("blur", paint);
    canvas.addEventListener("keydown", (e) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: +canvas.dataset.columns, ArrowUp: -canvas.dataset.columns }[e.key];
      if (e.key === "Enter") open(+(canvas.dataset.chosen || 0));
      if (!step) return;
      e.preventDefault();
      const n = +(canvas.dataset.chosen || 0) + step;
      if (n >= 0 && n < group().nodes.length) { canvas.dataset.chosen = n; paint(); choose(canvas, n); }
    });
  }

  function choose(canvas, n) {
    const g = fleet.groups[+canvas.dataset.index], size = +canvas.dataset.size, columns = +canvas.dataset.columns, c = canvas.getContext("2d");
    if (n >= g.nodes.length) return;
    c.strokeStyle = colours().text;
    c.lineWidth = 2;
    c.strokeRect((n % columns) * size, Math.floor(n / columns) * size, size - 1, size - 1);
    tell(g, n);
  }

  function tell(g, n) {
    const tip = document.getElementById("tip");
    if (!tip) return;
    const mark = { x: ", not ready", c: ", cordoned" }[g.marks[n]] || "";
    tip.textContent = n < 0 ? "" : g.nodes[n] + mark + ". " + fleet.texts[g.texts[n]];
  }

  main.addEventListener("click", async (e) => {
    if (!e.target.classList.contains("copy")) return;
    await navigator.clipboard.writeText(e.target.parentElement.querySelector("code").textContent);
    e.target.textContent = "Copied";
  });
  main.addEventListener("toggle", async (e) => {
    const log = e.target.querySelector?.("[data-log]");
    if (!log || !e.target.open || log.textContent) return;
    const answer = await fetch(log.dataset.log);
    log.textContent = (await answer.text()) || "There are none.";
  }, true);
  addEventListener("resize", paint);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { drawKeys(); paint(); });

  drawKeys();
  drawFleet().catch(() => outdated("The fleet can't be read."));
  follow();
})();
