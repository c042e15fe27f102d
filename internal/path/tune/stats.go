package tune

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Summary describes the runs of one setting.
type Summary struct {
	Mean float64 `json:"mean"`
	SD   float64 `json:"sd"` // 0 with fewer than two runs
}

func summarize(values []float64) (s Summary) {
	switch len(values) {
	case 0:
	case 1:
		s.Mean = values[0]
	default:
		s.Mean, s.SD = stat.MeanStdDev(values, nil)
	}
	return s
}

// Interval is the mean of paired differences, trimmed as by estimate, and the interval that holds the
// true difference in 95 % of all experiments.
type Interval struct {
	Pairs int     `json:"pairs"`
	Mean  float64 `json:"mean"`
	Low   float64 `json:"low"` // valid from two pairs on, like High
	High  float64 `json:"high"`
}

// known reports whether there were enough pairs for an interval.
func (i *Interval) known() bool { return i.Pairs >= 2 }

// HoldsZero reports whether there may be no difference.
func (i *Interval) HoldsZero() bool { return !i.known() || i.Low <= 0 && i.High >= 0 }

// trim says which part of the differences an estimate leaves out at either end: 1/trim. A machine
// that stands still for a moment slows single runs down to a tenth. One of them makes an interval so
// wide that it hides a gain of a fifth. With a larger part, intervals of few differences are too
// narrow.
const trim = 7

// estimate returns the trimmed mean of differences, its standard error, and Student's distribution of
// their ratio (Tukey and McLaughlin, Sankhya A 25, 1963; Yuen, Biometrika 61, 1974). With fewer
// differences than trim, it is Student's t (1908). It needs two.
func estimate(d []float64) (mean, err float64, student distuv.StudentsT) {
	sorted := slices.Sorted(slices.Values(d))
	n, cut := len(d), len(d)/trim
	if sorted[cut] == sorted[n-1-cut] {
		cut = 0 // the rest has no spread: what is left out is all that is known of it
	}
	left := n - 2*cut
	mean = stat.Mean(sorted[cut:n-cut], nil)
	for i := range cut {
		sorted[i], sorted[n-1-i] = sorted[cut], sorted[n-1-cut]
	}
	err = stat.StdDev(sorted, nil) * math.Sqrt(float64(n-1)/float64(left*(left-1)))
	return mean, err, distuv.StudentsT{Sigma: 1, Nu: float64(left - 1)}
}

// intervals returns an interval for each list of paired differences, by estimate. They hold
// together: the probability that any of them misses the truth is at most alpha. That is Holm's
// correction (Scandinavian Journal of Statistics 6, 1979): the k-th smallest p-value of m is compared
// with alpha/(m-k+1), up to the first that is larger. The intervals have these levels, so they hold
// 0 exactly where Holm's procedure does not reject.
func intervals(differences [][]float64, alpha float64) []Interval {
	all := make([]Interval, len(differences))
	p := make([]float64, len(differences))
	order := make([]int, len(differences))
	for i, d := range differences {
		order[i] = i
		all[i], p[i] = Interval{Pairs: len(d)}, 1
		switch len(d) {
		case 0:
		case 1:
			all[i].Mean = d[0]
		default:
			all[i].Mean, p[i] = test(d)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p[a], p[b]) })
	level, rejected := 0.0, true
	for k, i := range order {
		if rejected {
			level = alpha / float64(len(order)-k)
			rejected = p[i] <= level
		}
		if all[i].known() {
			_, err, student := estimate(differences[i])
			half := -student.Quantile(level/2) * err
			all[i].Low, all[i].High = all[i].Mean-half, all[i].Mean+half
		}
	}
	return all
}

// test returns the trimmed mean, and the probability of one that is as far from 0, or farther, if
// there is no difference. It needs two values.
func test(d []float64) (mean, p float64) {
	mean, err, student := estimate(d)
	switch {
	case err > 0:
		p = 2 * student.Survival(math.Abs(mean)/err)
	case mean == 0:
		p = 1
	}
	return mean, p
}
