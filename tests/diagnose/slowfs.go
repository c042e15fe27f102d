package main

import (
	"sync"
	"time"
)

// disk is how slow a disk is; what is zero takes no time.
type disk struct {
	read, write int64         // bytes/s
	sync, open  time.Duration // of each call
}

// device is a disk that does one thing at a time.
type device struct {
	disk
	mu   sync.Mutex
	free time.Time // when it has done all that was asked for
}

// take returns when the device has worked for d on this.
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

// spell is how long n bytes take at a rate, 0 being no limit.
func spell(n int, bytesPerSecond int64) time.Duration {
	if bytesPerSecond == 0 {
		return 0
	}
	return time.Duration(float64(n) / float64(bytesPerSecond) * float64(time.Second))
}
