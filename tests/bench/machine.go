package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fxfer/fxfer/internal/path/lab"
	"github.com/fxfer/fxfer/tests/internal/hosts"
)

// freeMemory returns how many bytes new files and programs can use.
func freeMemory() (int64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	kib, err := procField(string(text), "MemAvailable:")
	return kib * 1024, err
}

// peakMemory returns the largest resident size of a running process so far, in bytes. It is 0 if
// the process is gone.
func peakMemory(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	kib, err := procField(string(text), "VmHWM:")
	if err != nil {
		return 0 // a zombie has no memory
	}
	return kib * 1024
}

// processSeconds returns the CPU seconds of a running process so far. The kernel counts hundredths
// (proc_pid_stat(5)).
func processSeconds(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return statSeconds(string(text))
}

func statSeconds(stat string) (float64, error) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:]) // the name before may contain anything
	if len(fields) < 13 {
		return 0, errors.New("/proc/PID/stat: too short")
	}
	user, err := strconv.ParseInt(fields[11], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("/proc/PID/stat: %w", err)
	}
	system, err := strconv.ParseInt(fields[12], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("/proc/PID/stat: %w", err)
	}
	return float64(user+system) / 100, nil
}

// procField returns the number after a key at the start of a line.
func procField(text, key string) (int64, error) {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, key); ok {
			if fields := strings.Fields(rest); len(fields) > 0 {
				return strconv.ParseInt(fields[0], 10, 64)
			}
		}
	}
	return 0, fmt.Errorf("%q not found", key)
}

// cpuSeconds returns how long all processors together have worked since the boot.
func cpuSeconds() (float64, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	return busySeconds(string(text))
}

// busySeconds reads /proc/stat: user, nice, system, irq and softirq, but not idle, iowait and
// steal. Its unit is 1/100 s (USER_HZ, proc(5)).
func busySeconds(stat string) (float64, error) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	if len(fields) < 8 || fields[0] != "cpu" {
		return 0, errors.New("/proc/stat: the first line isn't that of all processors")
	}
	var ticks int64
	for _, i := range []int{1, 2, 3, 6, 7} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat: %w", err)
		}
		ticks += n
	}
	return float64(ticks) / 100, nil
}

// setUpHosts sets the limits of h on the hosts of l. Limits that all namespaces share change for
// the whole machine until undo is called.
func setUpHosts(l *lab.Lab, h setup) (undo func() error, err error) {
	var all hosts.Machine
	var machine, host []hosts.Setting
	if h == stockLimits || h == stockCubic {
		machine = []hosts.Setting{{Name: "net/core/rmem_max", Value: "212992"}, {Name: "net/core/wmem_max", Value: "212992"}}
		host = []hosts.Setting{{Name: "net/ipv4/tcp_rmem", Value: "4096 131072 6291456"}, {Name: "net/ipv4/tcp_wmem", Value: "4096 16384 4194304"}}
	}
	switch h {
	case stockCubic:
		machine = append(machine, hosts.Setting{Name: hosts.AllowedCC, Value: "reno cubic"})
	case cubicDefault:
		machine = append(machine, hosts.Setting{Name: hosts.AllowedCC, Value: "reno cubic bbr"})
	case asIs, stockLimits:
	}
	if h == stockCubic || h == cubicDefault {
		host = append(host, hosts.Setting{Name: hosts.DefaultCC, Value: "cubic"})
	}
	for _, s := range machine {
		if err := all.Set(s); err != nil {
			return nil, errors.Join(err, all.Undo())
		}
	}
	for _, side := range slices.Concat([]*lab.Host{l.Left, l.Right}, l.Middle, l.Leaves) {
		err := side.Do(func() error {
			for _, s := range host {
				if err := hosts.SetSysctl(s.Name, s.Value); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, errors.Join(err, all.Undo())
		}
	}
	return all.Undo, nil
}

// machine describes the machine of a measurement, but does not identify it.
type machine struct {
	date    time.Time
	cpus    int
	model   string
	memory  int64
	kernel  string
	network string
	tools   []string // with their versions
}

func (m *machine) String() string {
	return fmt.Sprintf("%s. %d processors, %s, %.0f GiB of memory, Linux %s; %s. %s.", m.date.Format("2 January 2006"), m.cpus, m.model,
		float64(m.memory)/(1<<30), m.kernel, m.network, strings.Join(m.tools, ", "))
}

var versionForm = regexp.MustCompile(`\d+\.\d+[0-9.p]*`)

// versionCommands are the commands that print the versions of programs.
var versionCommands = [][]string{
	{"iperf3", "--version"}, {"tar", "--version"}, {"socat", "-V"}, {"lftp", "--version"}, {"vsftpd", "-v"}, {"rsync", "--version"}, {"ssh", "-V"},
	{"smbclient", "--version"}, {"rclone", "version"}, {"b3sum", "--version"},
}

func describeMachine(now time.Time) (machine, error) {
	m := machine{date: now, cpus: runtime.NumCPU(), model: hosts.Processor()}
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return m, err
	}
	kib, err := procField(string(text), "MemTotal:")
	if err != nil {
		return m, err
	}
	m.memory = kib * 1024
	m.kernel = hosts.Kernel()
	var facts []string
	for _, name := range []string{hosts.DefaultCC, hosts.AllowedCC, "net/ipv4/tcp_rmem", "net/ipv4/tcp_wmem", "net/core/rmem_max", "net/core/wmem_max"} {
		value, err := hosts.Sysctl(name)
		if err != nil {
			return m, err
		}
		short := name[strings.LastIndexByte(name, '/')+1:]
		facts = append(facts, short+" "+strings.Join(strings.Fields(value), " "))
	}
	m.network = strings.Join(facts, ", ")
	m.tools = append(m.tools, "Go "+strings.TrimPrefix(runtime.Version(), "go"))
	for _, c := range versionCommands {
		if v := versionForm.FindString(printed(find(c[0]), c[1:]...)); v != "" {
			m.tools = append(m.tools, c[0]+" "+v)
		}
	}
	return m, nil
}

// printed returns the output of a program, including what it writes to its standard input, as
// vsftpd does with its version. It returns nothing if the program fails.
func printed(name string, args ...string) string {
	r, w, err := os.Pipe()
	if err != nil {
		return ""
	}
	defer r.Close()
	c := exec.Command(name, args...)
	c.Stdin, c.Stdout, c.Stderr = w, w, w
	err = c.Start()
	w.Close()
	if err != nil {
		return ""
	}
	text, _ := io.ReadAll(r) // if this fails, there is no version
	if c.Wait() != nil {
		return ""
	}
	return string(text)
}

// find returns the path of a program, or its name if it is not found. It also looks in the folders
// for servers, which only root has in PATH.
func find(name string) string {
	for _, candidate := range []string{name, "/usr/sbin/" + name, "/usr/local/sbin/" + name} {
		if path, err := exec.LookPath(candidate); err == nil {
			return path
		}
	}
	return name
}
