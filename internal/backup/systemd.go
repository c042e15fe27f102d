package backup

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// Unit is a unit file for systemd.
type Unit struct {
	Name  string
	Text  string
	Start bool // systemctl enable --now needs this unit
}

// UnitOptions say how systemd runs the jobs.
type UnitOptions struct {
	Program string // path of fxfer
	File    string // file of jobs
	Home    string // FXFER_HOME
	User    string // "" means root
	Timers  bool   // a timer for each job instead of the daemon
}

// Units returns the unit files with which systemd runs the jobs of a file.
func Units(c *Config, o UnitOptions) []Unit {
	user := ""
	if o.User != "" {
		user = "User=" + o.User + "\n"
	}
	service := func(description, kind, command, install string) string {
		return fmt.Sprintf(`[Unit]
Description=%s
Documentation=https://github.com/fxfer/fxfer
Wants=network-online.target
After=network-online.target

[Service]
%sEnvironment=%s
ExecStart=%s backup %s --file %s
%s# What is cut off goes on when it is started again; hooks after a run may take their time.
TimeoutStopSec=60
KillMode=mixed
Nice=10
IOSchedulingPriority=7
ProtectClock=yes
ProtectHostname=yes
RestrictRealtime=yes
LockPersonality=yes
SystemCallArchitectures=native
%s`, description, user, unitQuote("FXFER_HOME="+o.Home), unitQuote(o.Program), command, unitQuote(o.File), kind, install)
	}
	if !o.Timers {
		// A faulty file makes the reload fail before the daemon is signalled.
		reload := fmt.Sprintf("ExecReload=%s backup check --file %s\nExecReload=/bin/kill -HUP $MAINPID\n", unitQuote(o.Program), unitQuote(o.File))
		return []Unit{{"fxfer-backup.service", service("fxfer backups", "Type=exec\n"+reload+"Restart=on-failure\nRestartSec=10\n", "daemon", "\n[Install]\nWantedBy=multi-user.target\n"), true}}
	}
	units := []Unit{{"fxfer-backup@.service", service("fxfer backup %i", "Type=oneshot\n", "run --due %i", ""), false}}
	for _, j := range c.Jobs {
		if j.Schedule == nil {
			continue
		}
		var b strings.Builder
		fmt.Fprintf(&b, "[Unit]\nDescription=When the fxfer backup %s is due: %s\n\n[Timer]\nUnit=fxfer-backup@%s.service\n", j.Name, j.Schedule, j.Name)
		for _, line := range j.Schedule.onCalendar() {
			fmt.Fprintf(&b, "OnCalendar=%s\n", line)
		}
		for _, s := range j.Window.spans { // waiting and paused runs resume when the window opens
			fmt.Fprintf(&b, "OnCalendar=%s *-*-* %02d:%02d:%02d%s\n", weekdaysOf(s.days), s.from/3600, s.from/60%60, s.from%60, zoneOf(j.Zone))
		}
		fmt.Fprintf(&b, "RandomizedDelaySec=%d\nAccuracySec=1\nPersistent=yes\n\n[Install]\nWantedBy=timers.target\n", int(j.Jitter.Seconds()))
		units = append(units, Unit{"fxfer-backup-" + j.Name + ".timer", b.String(), true})
	}
	return units
}

// unitQuote quotes a word for a unit file, see systemd.syntax(7) and systemd.service(5).
func unitQuote(s string) string {
	s = strings.NewReplacer("%", "%%", "$", "$$").Replace(s)
	if strings.ContainsAny(s, " \t\"'\\") {
		return strconv.Quote(s)
	}
	return s
}

// onCalendar returns the schedule as lines of systemd.time(7). The job is due when any line
// matches.
func (s *Schedule) onCalendar() []string {
	clock := fmt.Sprintf(" %s:%s:%s%s", calendarList(s.hour, 0, 23), calendarList(s.minute, 0, 59), calendarList(s.second, 0, 59), zoneOf(s.loc))
	month := calendarList(s.month, 1, 12)
	days, weekdays := calendarList(s.day, 1, 31), ""
	var set [7]bool
	for d := range set {
		set[d] = s.weekday&(1<<d) != 0
	}
	if s.weekday != 1<<7-1 {
		weekdays = weekdaysOf(set) + " "
	}
	if s.either {
		return []string{"*-" + month + "-" + days + clock, weekdays + "*-" + month + "-*" + clock}
	}
	return []string{weekdays + "*-" + month + "-" + days + clock}
}

func calendarList(set uint64, least, most int) string {
	if bits.OnesCount64(set) == most-least+1 {
		return "*"
	}
	var list []string
	for ; set != 0; set &= set - 1 {
		list = append(list, fmt.Sprintf("%02d", bits.TrailingZeros64(set)))
	}
	return strings.Join(list, ",")
}

func weekdaysOf(days [7]bool) string {
	var names []string
	for i := range 7 { // from Monday on
		if d := (i + 1) % 7; days[d] {
			names = append(names, time.Weekday(d).String()[:3])
		}
	}
	return strings.Join(names, ",")
}

func zoneOf(loc *time.Location) string {
	if loc == time.Local {
		return ""
	}
	return " " + loc.String()
}
