"use strict";
// A search as one types: a form with data-live is sent after each pause, and its answer replaces the element that it names.
for (const form of document.querySelectorAll("form[data-live]")) {
  const place = document.getElementById(form.dataset.live);
  let timer, running;
  const send = async () => {
    running?.abort();
    running = new AbortController();
    const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== ""));
    const address = `${form.action}?${query}`;
    let answer, rows;
    try {
      answer = await fetch(`${address}${query.size ? "&" : ""}part=true`, { signal: running.signal });
      rows = await answer.text();
    } catch (error) {
      if (error.name !== "AbortError") place.textContent = "The viewer does not answer; it was stopped. Start `headrace view` again.";
      return;
    }
    if (!answer.ok) { location.assign(address); return; }
    const focused = document.activeElement?.name;
    place.innerHTML = rows;
    if (focused && !form.contains(document.activeElement)) form.elements[focused]?.focus();
    history.replaceState(null, "", address);
  };
  form.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(send, 180); });
  form.addEventListener("submit", (event) => { event.preventDefault(); send(); });
}
// Parts that are fetched when they are needed: an element with data-load when it is seen, or (data-when="opened") when its link is followed.
const fetchPart = async (address) => {
  const answer = await fetch(address);
  return new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main .part, main .message");
};
const put = (place, part) => {
  place.replaceChildren(part);
  for (const piece of part.querySelectorAll("[data-for]")) document.getElementById(piece.dataset.for)?.append(piece);
  document.dispatchEvent(new CustomEvent("part", { detail: place }));
};
const load = async (place) => {
  place.ariaBusy = "true";
  const part = await fetchPart(place.dataset.load).finally(() => { place.ariaBusy = null; });
  if (part) put(place, part);
  place.dataset.loaded = "true";
};
const WAIT_MS = 300; // a reader who goes on at once needs none of it
const seen = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    seen.unobserve(target);
    if (target.dataset.when === "seen") load(target); else setTimeout(load, WAIT_MS, target);
  }
});
for (const place of document.querySelectorAll("[data-load]")) {
  if (place.dataset.when !== "opened") seen.observe(place);
  else place.querySelector("a").addEventListener("click", (event) => { event.preventDefault(); load(place); });
}
// A part with data-poll is asked for again while it is looked at; a new version of the store brings the other parts anew.
const POLL_MS = 2000, ANEW_MS = 10000;
for (const place of document.querySelectorAll("[data-poll]")) {
  let version = place.querySelector("[data-version]")?.dataset.version, anew = 0;
  setInterval(async () => {
    if (document.hidden) return;
    let part;
    try { part = await fetchPart(place.dataset.poll); } catch { return; }
    if (!part) return;
    if (part.dataset.version !== version && performance.now() - anew > ANEW_MS) {
      version = part.dataset.version;
      anew = performance.now();
      for (const other of document.querySelectorAll("[data-loaded]")) load(other);
    }
    const text = part.innerHTML;
    if (text !== place.dataset.text) put(place, part);
    place.dataset.text = text;
  }, POLL_MS);
}
// A page whose content is still being made is asked for again.
for (const place of document.querySelectorAll("[data-reload]")) setTimeout(() => location.reload(), Number(place.dataset.reload));
// Keys: / to the search field, Escape out of it, j and k through the links of a list.
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") document.activeElement?.blur();
  const isTyping = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName ?? "");
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") {
    event.preventDefault();
    (document.querySelector("form[data-live] input[type=search]") ?? document.querySelector("header input")).focus();
  }
  if (event.key === "j" || event.key === "k") {
    const links = [...document.querySelectorAll("tbody td:first-child a:first-child")];
    const at = links.indexOf(document.activeElement) + (event.key === "j" ? 1 : -1);
    links[Math.max(0, Math.min(links.length - 1, at))]?.focus();
  }
});
