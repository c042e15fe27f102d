package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/fxfer/fxfer/tests/internal/hosts"
)

const (
	iperfName = "iperf3"
	iperfPort = 5201
)

// bestOf is the best result of iperf3: the number of streams, and the goodput of each run in bit/s.
type bestOf struct {
	streams int
	rates   []float64
	err     error
}

func startIperf(ctx context.Context, s *stage) error {
	_, err := s.Serve(ctx, hosts.Command{Host: s.receiver, Argv: []string{find("iperf3"), "-s", "-p", strconv.Itoa(iperfPort)}}, iperfPort)
	return err
}

// iperf returns the goodput at the receiver in bit/s, without slow start.
func (s *stage) iperf(ctx context.Context, streams int, span time.Duration) (float64, error) {
	s.quiesce(ctx)
	omit := math.Ceil(max(0.5, 15*s.rtt.Seconds()))
	ctx, cancel := context.WithTimeout(ctx, span+time.Duration(omit)*time.Second+20*time.Second)
	defer cancel()
	c := hosts.Command{Host: s.sender, Argv: []string{find("iperf3"), "-c", s.receiverAddr.String(), "-p", strconv.Itoa(iperfPort), "-P", strconv.Itoa(streams),
		"-t", strconv.FormatFloat(span.Seconds(), 'f', 0, 64), "-O", strconv.FormatFloat(omit, 'f', 0, 64), "-J"}}
	cmd := s.Prepare(ctx, c)
	out, err := cmd.Output()
	rate, parseErr := iperfRate(out)
	return rate, errors.Join(err, parseErr)
}

// iperfRate returns the goodput at the receiver that iperf3 -J reports, in bit/s.
func iperfRate(out []byte) (float64, error) {
	var report struct {
		Error string
		End   struct {
			Received struct {
				Rate float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		}
	}
	if err := json.Unmarshal(out, &report); err != nil {
		return 0, fmt.Errorf("read iperf3's output: %w", err)
	}
	if report.Error != "" {
		return 0, fmt.Errorf("iperf3: %s", report.Error)
	}
	return report.End.Received.Rate, nil
}
