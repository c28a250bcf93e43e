// Buttons with data-copy put the text of an address of this viewer into the clipboard, and say so beside them.
document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("[data-copy]");
  if (!button) return;
  const said = button.parentElement.querySelector("[role=status]");
  try {
    const ids = await (await fetch(button.dataset.copy)).text();
    await navigator.clipboard.writeText(ids);
    said.textContent = `copied ${ids.split("\n").length - 1} ids`;
  } catch {
    said.textContent = "the browser did not let the page write to the clipboard: download them instead";
  }
});
