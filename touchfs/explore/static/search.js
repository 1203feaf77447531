// A search goes on by itself until a page of samples is found, as long as somebody looks at it. Without this script the
// link of the page goes on. Samples are taken from the page that it leads to, as they are there.
const SAMPLES = 50, PAUSE = 100, BUSY = 5;
const $ = (id, page = document) => page.getElementById(id);
const told = $("told"), link = $("following"), button = $("stop"), listed = () => document.querySelectorAll("a.row").length;
let runs = true, isAsking = false;

const list = (page) => [...page.querySelectorAll("#main .list, #main .grid")].at(-1);
const take = (page) => {
  const here = list(document), there = list(page);
  if (there) {
    for (const image of there.querySelectorAll("img")) image.addEventListener("error", () => image.replaceWith(Object.assign(document.createElement("span"), { className: "none" })));
    const alike = here?.className === there.className && here.tHead?.textContent === there.tHead?.textContent;
    const into = alike && (here.tBodies?.[0] ?? here);
    if (into) into.append(...(there.tBodies?.[0] ?? there).children);
    else link.closest("nav").before(there);
  }
  $("found").textContent = listed();
  $("searched").textContent = $("searched", page).textContent;
  told.dataset.searched = $("told", page).dataset.searched;
  $("progress").value = +told.dataset.searched;
};
const end = (text) => {
  runs = false;
  $("state").textContent = text;
  button.hidden = true;
  link.hidden = false;
};
const ask = () => {
  if (!runs || isAsking || document.hidden) return;
  isAsking = true;
  const request = new XMLHttpRequest();
  const again = (seconds) => setTimeout(() => { isAsking = false; ask(); }, 1000 * seconds);
  request.open("GET", link.href);
  request.responseType = "document";
  request.addEventListener("error", () => end(" · interrupted"));
  request.addEventListener("load", () => {
    const page = request.response;
    if (request.status === 503) return again(+request.getResponseHeader("Retry-After") || BUSY);
    if (request.status !== 200 || !$("told", page)) return end(" · interrupted");
    if ($("told", page).dataset.first !== told.dataset.searched) return location.replace(link.href);
    take(page);
    const next = $("following", page);
    if (next) link.setAttribute("href", next.getAttribute("href"));
    if (next && listed() < SAMPLES) return again(PAUSE / 1000);
    end(next ? "" : " · all searched");
    if (!next) { link.remove(); button.remove(); $("progress").remove(); }
  });
  request.send();
};
const run = (does) => {
  runs = does;
  $("state").textContent = does ? " · searching" : " · stopped";
  button.textContent = does ? "Stop" : "Go on";
  ask();
};
if (link && "unfinished" in told.dataset) {
  link.hidden = true;
  button.hidden = false;
  button.addEventListener("click", () => run(!runs));
  document.addEventListener("visibilitychange", ask);
  run(true);
}
