;; attack: An endless loop of `on-tick` with more fuel than time.
;; expect: on-tick -> deadline
;; limits: tick_fuel=1000000000000 tick_deadline_us=2000

;; in on-tick:
(loop $again (br $again)) (unreachable)
