/** Returns a clock in milliseconds that only goes forward, also while the machine sleeps: one of a browser's two clocks
 * may stand still then, and the other one can be set. An image is rather said to be too old than too young. */
export function makeClock(steady = () => performance.now(), wall = () => Date.now()) {
  let [steadyMs, wallMs, now] = [steady(), wall(), 0];
  return () => {
    const [steadyNow, wallNow] = [steady(), wall()];
    now += Math.max(steadyNow - steadyMs, wallNow - wallMs, 0);
    [steadyMs, wallMs] = [steadyNow, wallNow];
    return now;
  };
}
