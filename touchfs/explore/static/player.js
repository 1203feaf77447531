// What pages do beside links and forms: a recording is heard where it is clicked, rows are walked by keys, and a page
// that is being counted is loaded again. Without this script all links and forms work.
// A part of a recording is chosen by dragging over its picture, which shows so many seconds from a start on.
const zoomed = (view, start, drawn) => {
  const chosen = Object.assign(document.createElement("div"), { className: "chosen", hidden: true });
  view.append(chosen);
  let from = null, at = null, isDragged = false;
  const share = (event) => {
    const box = view.getBoundingClientRect();
    return Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
  };
  const end = () => { from = null; chosen.hidden = true; };
  view.addEventListener("pointerdown", (event) => { from = at = event.button ? null : share(event); isDragged = false; });
  view.addEventListener("click", (event) => { if (isDragged) event.preventDefault(); });
  view.addEventListener("dragstart", (event) => event.preventDefault());
  addEventListener("pointermove", (event) => {
    if (from === null) return;
    at = share(event);
    chosen.hidden = Math.abs(at - from) < 0.01;
    chosen.style.left = `${100 * Math.min(from, at)}%`;
    chosen.style.width = `${100 * Math.abs(at - from)}%`;
  });
  addEventListener("pointerup", () => {
    if (from !== null && !chosen.hidden && Math.abs(at - from) * drawn >= 0.02) {
      isDragged = true;
      const url = new URL(location.href);
      url.searchParams.delete("segments");
      url.searchParams.set("t", [Math.min(from, at), Math.max(from, at)].map((each) => (Math.floor((start + each * drawn) * 1000) / 1000).toFixed(3)));
      url.hash = "";
      location.assign(url.href);
    }
    end();
  });
  addEventListener("pointercancel", end);
};
const recording = (root) => {
  const $ = (query) => root.querySelector(query);
  const view = $(".view"), head = $(".head"), button = $(".play"), output = $("output"), audio = new Audio();
  const seconds = +root.dataset.seconds, start = +root.dataset.start, drawn = +root.dataset.drawn;
  const rows = [...document.querySelectorAll(".segments tr[data-start]")].map((row) => ({
    row, start: +row.dataset.start, end: +row.dataset.end, link: row.querySelector("a[data-segment]"),
    marks: [row, ...document.querySelectorAll(`.speech [data-segment="${row.id.slice(8)}"]`)],
    text: row.querySelector(".text").textContent,
  }));
  let place = 0, offset = 0, current = null;
  const show = (time) => {
    place = Math.min(Math.max(time, 0), seconds);
    head.style.left = `${Math.min(Math.max(100 * (place - start) / (drawn || 1), 0), 100)}%`;
    output.textContent = `${place.toFixed(2)} / ${seconds.toFixed(2)} s`;
    const at = rows.find((each) => each.start <= place && place < each.end) ?? null;
    view.setAttribute("aria-valuenow", place.toFixed(2));
    view.setAttribute("aria-valuetext",
      `${place.toFixed(2)} of ${seconds.toFixed(2)} seconds${at ? `, segment ${at.row.id.slice(8)}: ${at.text}` : ""}`);
    if (at === current) return;
    current?.marks.forEach((each) => each.removeAttribute("aria-current"));
    at?.marks.forEach((each) => each.setAttribute("aria-current", "true"));
    current = at;
  };
  const play = (url, from, at = 0) => {
    offset = from;
    if (audio.getAttribute("src") !== url) audio.src = url;
    audio.currentTime = at;
    audio.play().catch(() => { output.textContent = "this browser cannot play it"; });
  };
  const move = (time) => { audio.pause(); show(time); };
  const segment = (each) => { if (each?.link) { show(each.start); play(each.link.getAttribute("href"), each.start); } };
  const toggle = () => (audio.paused ? play(root.dataset.url, 0, place < seconds - 0.01 ? place : 0) : audio.pause());
  const step = (by) => {
    const next = by > 0 ? rows.find((each) => each.start > place + 0.001) : rows.findLast((each) => each.end <= place + 0.001 && each !== current);
    segment(next);
  };
  const tick = () => { if (!audio.paused) { show(offset + audio.currentTime); requestAnimationFrame(tick); } };
  audio.addEventListener("play", () => { button.textContent = "❚❚"; button.ariaLabel = "Pause"; tick(); });
  audio.addEventListener("pause", () => { button.textContent = "▶"; button.ariaLabel = "Play"; });
  audio.addEventListener("ended", () => show(offset + audio.currentTime));
  button.addEventListener("click", toggle);
  view.addEventListener("pointerdown", (event) => {
    const lane = event.target.closest("[data-segment]");
    const box = view.getBoundingClientRect();
    const listed = lane && rows.find((each) => each.row.id === `segment-${lane.dataset.segment}`);
    if (listed) return segment(listed);
    move(start + (event.clientX - box.left) / box.width * drawn);
  });
  zoomed(view, start, drawn);
  view.addEventListener("keydown", (event) => {
    const moves = {
      ArrowRight: () => move(place + drawn / 100), ArrowLeft: () => move(place - drawn / 100), Home: () => move(start),
      End: () => move(start + drawn), PageDown: () => step(1), PageUp: () => step(-1), " ": toggle, Enter: () => segment(current),
    };
    if (moves[event.key]) { event.preventDefault(); moves[event.key](); }
  });
  for (const each of rows) each.link?.addEventListener("click", (event) => { event.preventDefault(); segment(each); });
  for (const [name, value] of Object.entries({ role: "slider", tabindex: 0, "aria-label": "Position", "aria-valuemin": 0, "aria-valuemax": seconds.toFixed(2) })) view.setAttribute(name, value);
  $(".controls").hidden = head.hidden = false;
  const overview = $(".overview");
  if (overview) zoomed(overview, 0, seconds);
  const asked = /^#t=([\d.]+)/.exec(location.hash);
  show(asked ? +asked[1] : start);
};
document.querySelectorAll(".player").forEach(recording);

// A picture that cannot be drawn leaves its place empty. One that failed before this script ran is asked for again.
for (const image of document.querySelectorAll(".list img, .grid img, .frames img")) {
  image.addEventListener("error", () => image.replaceWith(Object.assign(document.createElement("span"), { className: "none" })));
  if (image.complete && !image.naturalWidth) image.src = image.getAttribute("src");
}

const walk = (by) => {
  const rows = [...document.querySelectorAll("a.row")];
  rows[Math.min(Math.max(rows.indexOf(document.activeElement) + by, 0), rows.length - 1)]?.focus();
};
const zoom = (name) => document.querySelector(`a[data-zoom="${name}"]`)?.click();
const keys = {
  "/": () => document.getElementById("where")?.focus(), j: () => walk(1), k: () => walk(-1),
  "[": () => document.querySelector("a[rel=prev]")?.click(), "]": () => document.querySelector("a[rel=next]")?.click(),
  "+": () => zoom("in"), "=": () => zoom("in"), "-": () => zoom("out"), "<": () => zoom("earlier"), ">": () => zoom("later"),
  "0": () => zoom("whole"),
  "?": () => help.click(),
};
const help = document.getElementById("help"), told = document.getElementById("keys"), letters = document.getElementById("letters");
help.hidden = false;
help.addEventListener("click", () => {
  told.hidden = !told.hidden;
  help.ariaExpanded = String(!told.hidden);
  told.scrollIntoView();
});
// Who speaks to the computer can switch them off: a word would be a row of keys. A browser may refuse to remember that.
try { letters.checked = localStorage.getItem("keys") !== "off"; } catch { /* they are on */ }
letters.addEventListener("change", () => { try { localStorage.setItem("keys", letters.checked ? "on" : "off"); } catch { /* until the next page */ } });
document.addEventListener("keydown", (event) => {
  if (!letters.checked || event.ctrlKey || event.altKey || event.metaKey || event.target.closest("input:not([type=checkbox]), select, textarea")) return;
  if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
});

if (document.querySelector("[data-counting]")) setTimeout(() => {
  if (!document.activeElement?.closest("form")) location.reload();
}, 2000);
