// Package backup runs backup jobs by schedule: one file says what is sent where, when, how fast, and what is kept.
//
// What decides is pure: when a job is due (Schedule), may transfer (Window) and how fast (Timetable), what is to be done next (due.go) and
// when a run will end (forecast.go). A Runner carries runs out, a Daemon begins them; a Store remembers, so that both may die at any time.
package backup
