;; attack: Uses atomic instructions, which no policy needs.
;; expect: load -> invalid
;; proposal: THREADS

;; in core:
(func (drop (i32.atomic.load (i32.const 0))))
