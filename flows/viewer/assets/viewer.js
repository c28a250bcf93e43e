"use strict";
// A search as one types: a form with data-live is sent after each pause, and its answer replaces the element that it names.
for (const form of document.querySelectorAll("form[data-live]")) {
  const place = document.getElementById(form.dataset.live);
  let timer, latest = 0;
  const send = async () => {
    const turn = ++latest;
    const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== ""));
    const address = `${form.action}?${query}`;
    const answer = await fetch(`${address}${query.size ? "&" : ""}part=true`);
    if (turn !== latest) return;
    if (!answer.ok) { location.assign(address); return; }
    const focused = document.activeElement?.name;
    place.innerHTML = await answer.text();
    if (focused && !form.contains(document.activeElement)) form.elements[focused]?.focus();
    history.replaceState(null, "", address);
  };
  form.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(send, 120); });
  form.addEventListener("submit", (event) => { event.preventDefault(); send(); });
}
// Keys: / to the search field, j and k through the links of a list.
document.addEventListener("keydown", (event) => {
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
