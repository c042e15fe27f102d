// Numbers for people, in the same form as on the command line.

function scaled(n, units, step = 1000) {
  let i = 0;
  for (; Math.abs(n) >= step * 0.9995 && i < units.length - 1; i++) n /= step;
  const digits = i === 0 || n >= 99.95 ? 0 : n >= 9.995 ? 1 : 2;
  return n.toFixed(digits) + " " + units[i];
}

export const rate = n => n > 0 ? scaled(n, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"]) : "0";
export const bytes = n => scaled(n, ["B", "kB", "MB", "GB", "TB", "PB"]);
export const percent = p => p > 0 && p < 0.0095 ? "< 1 %" : Math.round(p * 100) + " %";

export function millis(s) {
  const ms = s * 1000;
  if (ms === 0) return "0";
  if (ms < 0.0995) return (ms * 1000).toFixed(0) + " µs";
  return (ms >= 99.95 ? ms.toFixed(0) : ms >= 9.995 ? ms.toFixed(1) : ms.toFixed(2)) + " ms";
}

export function duration(s) {
  if (!isFinite(s)) return "–";
  if (s < 1) return Math.round(s * 1000) + " ms";
  if (s < 10) return s.toFixed(1) + " s";
  if (s < 90) return Math.round(s) + " s";
  if (s < 5400) return Math.round(s / 60) + " min";
  if (s < 129600) return Math.floor(s / 3600) + " h " + Math.round(s % 3600 / 60) + " min";
  return Math.round(s / 86400) + " days";
}

export function ago(ms) {
  const s = (Date.now() - ms) / 1000;
  return s < 60 ? "just now" : duration(s) + " ago";
}

// clock formats a time: without the day if it is today.
export function clock(ms) {
  const d = new Date(ms), time = d.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false });
  return d.toDateString() === new Date().toDateString() ? time : d.toLocaleDateString([], { month: "short", day: "numeric" }) + ", " + time;
}
