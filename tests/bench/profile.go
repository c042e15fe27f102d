package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// sample is one moment of one thread, as perf saw it.
type sample struct {
	comm   string
	pid    int
	weight float64
	stack  []string // symbols, the innermost function first
}

// profile samples the whole machine while f runs. It needs perf and the symbols of the kernel.
func (b *bench) profile(ctx context.Context, f func() error) (_ []sample, err error) {
	file := b.Abs("tmp/perf")
	record := exec.CommandContext(ctx, "perf", "record", "-q", "-a", "-g", "-F", "997", "-o", file)
	var said strings.Builder
	record.Stderr = &said
	if err := record.Start(); err != nil {
		return nil, fmt.Errorf("start perf, of the package linux-perf: %w", err)
	}
	defer func() { err = errors.Join(err, os.Remove(file)) }()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); { // until it records
		if info, err := os.Stat(file); err == nil && info.Size() > 0 {
			break
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			break
		}
	}
	err = f()
	_ = record.Process.Signal(os.Interrupt)
	_ = record.Wait() // it ends by the signal; whether it worked, the file says
	if err != nil {
		return nil, err
	}
	script := exec.CommandContext(ctx, "perf", "script", "-i", file, "--no-inline", "-F", "comm,pid,period,ip,sym")
	script.Stderr = &said
	out, err := script.Output()
	if err != nil {
		return nil, fmt.Errorf("perf: %w: %s", err, said.String())
	}
	samples := parsePerf(string(out))
	if len(samples) == 0 {
		return nil, errors.New("perf recorded nothing: " + said.String())
	}
	return samples, nil
}

// parsePerf reads what perf script prints of comm, pid, period and the symbols: a line for each
// sample and one for each function, then an empty one.
func parsePerf(text string) (samples []sample) {
	for block := range strings.SplitSeq(text, "\n\n") {
		head, functions, _ := strings.Cut(strings.TrimSpace(block), "\n")
		fields := strings.Fields(head)
		if len(fields) < 3 {
			continue
		}
		n := len(fields)
		pid, err := strconv.Atoi(fields[n-2])
		weight, bad := strconv.ParseFloat(fields[n-1], 64)
		if err != nil || bad != nil {
			continue
		}
		s := sample{comm: strings.Join(fields[:n-2], " "), pid: pid, weight: weight}
		for line := range strings.Lines(functions) {
			if _, symbol, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
				s.stack = append(s.stack, symbol)
			}
		}
		samples = append(samples, s)
	}
	return samples
}

// distribute divides seconds among the steps by the samples that of selects.
func distribute(samples []sample, of func(*sample) bool, seconds float64) (c costs) {
	var all float64
	for i := range samples {
		if s := &samples[i]; of(s) {
			c[stepOf(s.stack)] += s.weight
			all += s.weight
		}
	}
	for i := range c {
		if all > 0 {
			c[i] *= seconds / all
		}
	}
	return c
}

// stepSigns are parts of the names of functions in which a step is done. The first one counts whose
// sign is in the stack, and in, too: so the work of an interrupt belongs to TCP, whatever it
// interrupts.
var stepSigns = []struct {
	step
	in    string
	signs []string
}{
	{stepWake, "", []string{"__schedule", "finish_task_switch"}},
	{stepStack, "", []string{"net_rx_action", "net_tx_action", "tcp_tsq_", "tcp_write_timer", "tcp_delack_timer"}},
	{stepCopyIn, "tcp_sendmsg", []string{"copy_from_iter", "skb_copy_to_page_nocache"}},
	{stepCopyOut, "tcp_recvmsg", []string{"copy_to_iter", "skb_datagram_iter"}},
	{stepStack, "", []string{"tcp_sendmsg", "tcp_recvmsg", "sock_sendmsg", "sock_recvmsg", "sock_write_iter", "sock_read_iter"}},
	{stepSync, "", []string{"fsync", "syncfs", "sync_file_range"}},
	{stepWrite, "", []string{"vfs_write", "pwrite64", "fallocate"}},
	{stepRead, "", []string{"vfs_read", "pread64"}},
	{stepDigest, "", []string{"internal/digest.", "blake3/guts."}},
	{stepOpen, "", []string{"vaesgcm.open", "gcm.open", "gcmAesDec", "GCM.Open", "GCM).Open"}}, // before sealing: the rest of a record is opened by sealing zeros
	{stepSeal, "", []string{"vaesgcm.seal", "gcm.seal", "gcmAesEnc", "GCM.Seal", "GCM).Seal"}},
	{stepGarbage, "", []string{"runtime.gcBgMarkWorker", "runtime.mallocgc", "runtime.bgsweep", "runtime.bgscavenge", "runtime.gcStart"}},
	{stepWake, "", []string{
		"futex", "epoll", "nanosleep", "schedule", "runtime.mcall", "runtime.mstart", "runtime.findRunnable", "runtime.sysmon", "runtime.notewakeup",
		"runtime.netpoll", "runtime.ready", "runtime.usleep",
	}},
}

// stepOf names the step that a stack belongs to.
func stepOf(stack []string) step {
	has := func(sign string) bool {
		return slices.ContainsFunc(stack, func(symbol string) bool { return strings.Contains(symbol, sign) })
	}
	for _, x := range stepSigns {
		if (x.in == "" || has(x.in)) && slices.ContainsFunc(x.signs, has) {
			return x.step
		}
	}
	return stepRest
}
