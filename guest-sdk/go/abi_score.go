//go:build wasip1 && pointsman_score

package pointsman

var (
	toScore Candidates
	costs   []float64
)

func init() {
	scoreReads = func() Reads {
		toScore.stage, toScore.reads = "Score", guest.(Scorer).ScoreReads()
		return toScore.reads
	}
}

//go:wasmexport pointsman:policy/worker-scorer@0.1.0#score
func score(rows uint32, n pointer, nl uint32, hasWorkers uint32, w pointer, wl uint32, hasTexts uint32, t pointer, tl uint32) pointer {
	begin()
	defer end()
	toScore.given(rows, list{n, nl}, list{w, wl}, list{t, tl})
	costs = zeroed(costs, rows)
	err := guarded("Score", func() error { return guest.(Scorer).Score(&toScore, costs) })
	return answered(listIn(costs), err)
}
