// Asks for the token, and keeps it if the server takes it.
import { keep, request } from "/assets/token.js";

const wrong = document.getElementById("wrong");

document.getElementById("login").addEventListener("submit", async event => {
  event.preventDefault();
  const token = document.getElementById("token").value.trim();
  wrong.hidden = true;
  try {
    const r = await request("/api/totals", "GET", token);
    if (r.ok) {
      keep(token);
      location.replace("/");
      return;
    }
    wrong.textContent = r.status === 401 ? "That is not the token." : (await r.text()).trim() || r.statusText;
  } catch {
    wrong.textContent = "The token has characters that no token has, or there is no connection.";
  }
  wrong.hidden = false;
});
