package web

import "github.com/prometheus/client_golang/prometheus"

// The metrics of a fleet's controller. Counters start at 0 with the process.
var (
	fleetReady    = metric{"fxfer_fleet_ready", prometheus.GaugeValue, "1 while the controller has its queue, 0 while that is away.", nil}
	fleetJobs     = metric{"fxfer_fleet_jobs", prometheus.GaugeValue, "Jobs, by state. Those that have ended stay.", []string{"state"}}
	fleetJobEnds  = metric{"fxfer_fleet_jobs_ended_total", prometheus.CounterValue, "Jobs that have ended, by state.", []string{"state"}}
	fleetShards   = metric{"fxfer_fleet_shards", prometheus.GaugeValue, "Shards of jobs that have not ended, by what they do; retrying ones wait after a failure.", []string{"status"}}
	fleetFiles    = metric{"fxfer_fleet_files", prometheus.GaugeValue, "Files of jobs that have not ended, as far as they are listed.", nil}
	fleetBytes    = metric{"fxfer_fleet_bytes", prometheus.GaugeValue, "Size of these files.", nil}
	fleetWritten  = metric{"fxfer_fleet_written_bytes_total", prometheus.CounterValue, "Bytes that workers have written at servers, those that were written twice included.", nil}
	fleetTaskEnds = metric{"fxfer_fleet_tasks_ended_total", prometheus.CounterValue, "Tasks that have ended, by kind and outcome.", []string{"kind", "outcome"}}
	fleetRetried  = metric{"fxfer_fleet_attempts_failed_total", prometheus.CounterValue, "Tasks that failed, and are tried again.", nil}
	fleetWorkers  = metric{"fxfer_fleet_workers", prometheus.GaugeValue, "Workers that have said within 20 s that they are there, by whether they have a task.", []string{"status"}}
	fleetQueueAge = metric{"fxfer_fleet_queue_age_seconds", prometheus.GaugeValue,
		"How long the job that waits longest has had no worker; 0 if each job has one, or none waits.", nil}
)

// allFleet lists them in the order of the page.
var allFleet = []*metric{
	&fleetReady, &fleetJobs, &fleetJobEnds, &fleetShards, &fleetFiles, &fleetBytes, &fleetWritten, &fleetTaskEnds, &fleetRetried, &fleetWorkers, &fleetQueueAge,
}

// report reports the state of the fleet.
func (p *FleetPages) report(x *scrape) {
	put := x.put
	f := p.ask()
	put(&buildInfo, 1, p.version)
	put(&fleetReady, number(f.Ready))
	states := make(map[string]int)
	var sum FleetJob // of jobs that have not ended
	var oldest float64
	for _, j := range f.Jobs {
		states[j.State]++
		if j.Over {
			continue
		}
		sum.Files += j.Files
		sum.Bytes += j.Bytes
		sum.Shards += j.Shards
		sum.Done += j.Done
		sum.Dead += j.Dead
		sum.Running += j.Running
		sum.Retrying += j.Retrying
		oldest = max(oldest, j.Idle)
	}
	for _, s := range f.States {
		put(&fleetJobs, float64(states[s]), s)
		if n, ends := f.JobEnds[s]; ends {
			put(&fleetJobEnds, float64(n), s)
		}
	}
	waiting := max(0, sum.Shards-sum.Done-sum.Dead-sum.Running-sum.Retrying)
	for status, n := range map[string]int{"waiting": waiting, "running": sum.Running, "retrying": sum.Retrying, "done": sum.Done, "dead": sum.Dead} {
		put(&fleetShards, float64(n), status)
	}
	put(&fleetFiles, float64(sum.Files))
	put(&fleetBytes, float64(sum.Bytes))
	put(&fleetWritten, float64(f.Written))
	for _, kind := range f.TaskKinds {
		for _, outcome := range []string{"done", "dead"} {
			put(&fleetTaskEnds, float64(f.TaskEnds[kind][outcome]), kind, outcome)
		}
	}
	put(&fleetRetried, float64(f.Retried))
	busy := 0
	for _, w := range f.Workers {
		if w.Task != "" {
			busy++
		}
	}
	put(&fleetWorkers, float64(busy), "busy")
	put(&fleetWorkers, float64(len(f.Workers)-busy), "idle")
	put(&fleetQueueAge, oldest)
}
