;; attack: 3,000 loops, one in the other, and 300 locals: 50 kB that take a compiler minutes.
;; expect: load -> structure (nesting)

;; in core:
(func (export "bomb")
;; repeat 300: (local i32)
;; repeat 3000: loop
;; repeat 3000: end
)
