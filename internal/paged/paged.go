// Package paged has a map for values whose numbers are given in order, such as those of entries.
package paged

import "iter"

// pageSize is how many numbers share a page. A page with one value left takes as much memory as a
// full one, so this bounds what that wastes.
const pageSize = 16

// Map has values by number. Numbers that follow one another lie beside each other, so it takes less
// time than a map of Go as long as most numbers of a page come and go together. The zero value is
// empty. A Map is not safe for concurrent use.
type Map[T any] struct {
	pages map[uint64]*page[T]
	last  *page[T] // that was used last; nil for none
	spare *page[T] // an empty one, to be used again; nil for none
	n     int
}

type page[T any] struct {
	number uint64
	taken  uint16 // bit i: values[i] is there
	values [pageSize]T
}

// Len returns how many values there are.
func (m *Map[T]) Len() int { return m.n }

// page returns the page of a number, nil if it has no values.
func (m *Map[T]) page(number uint64) *page[T] {
	if p := m.last; p != nil && p.number == number/pageSize {
		return p
	}
	p := m.pages[number/pageSize]
	if p != nil {
		m.last = p
	}
	return p
}

// Get returns the value of a number. It is zero if there is none.
func (m *Map[T]) Get(number uint64) (value T) {
	if p := m.page(number); p != nil {
		value = p.values[number%pageSize]
	}
	return value
}

// Put sets the value of a number.
func (m *Map[T]) Put(number uint64, value T) {
	p := m.page(number)
	if p == nil {
		if m.pages == nil {
			m.pages = make(map[uint64]*page[T])
		}
		if p, m.spare = m.spare, nil; p == nil {
			p = new(page[T])
		}
		p.number = number / pageSize
		m.pages[p.number], m.last = p, p
	}
	if bit := uint16(1) << (number % pageSize); p.taken&bit == 0 {
		p.taken |= bit
		m.n++
	}
	p.values[number%pageSize] = value
}

// Delete removes the value of a number, if there is one, and returns it.
func (m *Map[T]) Delete(number uint64) (value T) {
	p := m.page(number)
	bit := uint16(1) << (number % pageSize)
	if p == nil || p.taken&bit == 0 {
		return value
	}
	var none T
	value, p.values[number%pageSize] = p.values[number%pageSize], none
	m.n--
	if p.taken &^= bit; p.taken == 0 {
		delete(m.pages, p.number)
		m.last, m.spare = nil, p
	}
	return value
}

// All iterates over numbers and values in no order. Whoever does must not change the map meanwhile.
func (m *Map[T]) All() iter.Seq2[uint64, T] {
	return func(yield func(uint64, T) bool) {
		for _, p := range m.pages {
			for i := range p.values {
				if p.taken>>i&1 != 0 && !yield(p.number*pageSize+uint64(i), p.values[i]) {
					return
				}
			}
		}
	}
}
