// Package backup runs backup jobs by schedule. A file describes the jobs: what to send, where to,
// when, how fast, and which snapshots to keep.
//
// Decisions are pure functions: when a job is due (Schedule), when it may transfer (Window) and how
// fast (Timetable), what to do next (due.go), and when a run will end (forecast.go). A Daemon
// starts runs and a Runner carries them out. Both may die at any time, because a Store remembers
// the state.
package backup
