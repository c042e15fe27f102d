package hosts

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// leaving has this program leave processes behind, in place of its tests.
const leaving = "FXFER_LEAVES"

func TestMain(m *testing.M) {
	if os.Getenv(leaving) == "" {
		os.Exit(m.Run())
	}
	code, ran, err := Apart()
	if err != nil {
		panic(err)
	}
	if !ran {
		leave()
	}
	os.Exit(code)
}

// leave starts a child and a grandchild that would run for long, in process groups of their own, prints
// who they are, and dies.
func leave() {
	child := exec.Command("sleep", "1000")
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := child.Start(); err != nil {
		panic(err)
	}
	grandchild, err := exec.Command("setsid", "sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!").Output()
	if err != nil {
		panic(err)
	}
	fmt.Println(child.Process.Pid)
	fmt.Print(string(grandchild))
	_ = unix.Kill(os.Getpid(), unix.SIGKILL)
}

// TestApart: no process outlives a program that ran apart, though it was killed.
func TestApart(t *testing.T) {
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), leaving+"=1")
	c.Stderr = os.Stderr
	out, err := c.Output()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 1, exit.ExitCode())
	var pids []int
	for lines := bufio.NewScanner(strings.NewReader(string(out))); lines.Scan(); {
		var pid int
		_, err := fmt.Sscan(lines.Text(), &pid)
		require.NoError(t, err, "%s", out)
		pids = append(pids, pid)
	}
	require.Len(t, pids, 2)
	for _, pid := range pids {
		require.ErrorIs(t, unix.Kill(pid, 0), unix.ESRCH)
	}
}
