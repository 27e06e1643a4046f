//go:build wasip1 && pointsman_filter

package pointsman

var (
	toFilter Candidates
	keep     []bool
)

func init() {
	filterReads = func() Reads {
		toFilter.stage, toFilter.reads = "Filter", guest.(Filterer).FilterReads()
		return toFilter.reads
	}
}

//go:wasmexport pointsman:policy/worker-filter@0.1.0#keep
func filter(rows uint32, n pointer, nl uint32, hasWorkers uint32, w pointer, wl uint32, hasTexts uint32, t pointer, tl uint32) pointer {
	begin()
	defer end()
	toFilter.given(rows, list{n, nl}, list{w, wl}, list{t, tl})
	keep = zeroed(keep, rows)
	for row := range keep {
		keep[row] = true
	}
	err := guarded("Filter", func() error { return guest.(Filterer).Filter(&toFilter, keep) })
	return answered(listIn(keep), err)
}
