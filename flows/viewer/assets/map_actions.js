// Buttons with data-copy put the text of an address of this viewer into the clipboard, and say so beside them.
document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("[data-copy]");
  if (!button) return;
  const said = button.parentElement.querySelector("[role=status]");
  try {
    const answer = await fetch(button.dataset.copy);
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const ids = await answer.text();
    await navigator.clipboard.writeText(ids);
    said.textContent = `copied ${ids.split("\n").length - 1} ids`;
  } catch {
    said.textContent = "the ids were not copied: the viewer did not answer, or the browser does not let a page write to the clipboard; download them instead";
  }
});
