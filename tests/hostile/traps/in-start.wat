;; attack: The start function traps.
;; expect: describe -> trap

;; in core:
(func $start unreachable) (start $start)
