;; attack: Leaves itself half done before it traps, and would answer wrongly if it were asked again.
;; expect: score -> trap
;; calls: 3

;; in core:
(global $broken (mut i32) (i32.const 0))

;; in score:
(if (global.get $broken) (then (return (call $list (i32.const -8) (i32.const 1)))))
(global.set $broken (i32.const 1))
(unreachable)
