package main

import (
	"sync"
	"time"
)

// disk describes how slow a disk is. Zero fields take no time.
type disk struct {
	read, write int64         // bytes/s
	sync, open  time.Duration // time for each call
}

// device is a disk that does one thing at a time.
type device struct {
	disk
	mu   sync.Mutex
	free time.Time // when it has finished all requests so far
}

// take waits until the device has worked for d on this request.
func (v *device) take(d time.Duration) {
	if d <= 0 {
		return
	}
	v.mu.Lock()
	now := time.Now()
	if v.free.Before(now) {
		v.free = now
	}
	v.free = v.free.Add(d)
	wait := v.free.Sub(now)
	v.mu.Unlock()
	time.Sleep(wait)
}

// spell is how long n bytes take at a rate. The rate 0 is no limit.
func spell(n int, bytesPerSecond int64) time.Duration {
	if bytesPerSecond == 0 {
		return 0
	}
	return time.Duration(float64(n) / float64(bytesPerSecond) * float64(time.Second))
}
