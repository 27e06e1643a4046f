;; attack: `select` traps.
;; expect: select -> trap

;; in select:
unreachable
